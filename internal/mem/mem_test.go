package mem

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"substrate/pkg/doc"
)

func TestMap(t *testing.T) {
	for _, n := range []int64{1, 4095, 4096, 4097, MapAlign, MapAlign + 1, 3<<20 + 5} {
		buf, err := Map(n)
		if err != nil {
			t.Fatal(err)
		}
		if at := uintptr(unsafe.Pointer(&buf[0])); int64(len(buf)) != n || at%MapAlign != 0 {
			t.Errorf("%d bytes: got %d at %#x", n, len(buf), at)
		}
		for i, b := range buf {
			if b != 0 {
				t.Fatalf("byte %d of %d is %d", i, n, b)
			}
			buf[i] = 1
		}
		if err := Unmap(buf); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []int64{0, -1, 1 << 62} {
		if buf, err := Map(n); err == nil {
			t.Errorf("%d bytes: got %d", n, len(buf))
		}
	}
}

// A mapped buffer is resident at once, is anonymous memory, and is gone after
// Unmap.
func TestMapIsMeasured(t *testing.T) {
	meter, err := NewMeter()
	if err != nil {
		t.Skip(err)
	}
	defer meter.Close()
	const size, slack = 64 << 20, 4 << 20
	read := func() Usage {
		u, err := meter.Read()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := read()
	a := NewArena()
	if _, err := a.Alloc("weights", size); err != nil {
		t.Fatal(err)
	}
	with := read()
	if grown := with.Resident - before.Resident; grown < size-slack || grown > size+slack {
		t.Errorf("resident memory grew by %d, want about %d", grown, size)
	}
	if grown := with.Anonymous - before.Anonymous; before.Anonymous > 0 && (grown < size-slack || grown > size+slack) {
		t.Errorf("anonymous memory grew by %d, want about %d", grown, size)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	after := read()
	if after.Resident > before.Resident+slack || after.Peak < with.Resident-slack {
		t.Errorf("before %+v, with the buffer %+v, after %+v", before, with, after)
	}
	if n := testing.AllocsPerRun(10, func() { read() }); n != 0 {
		t.Errorf("a sample allocates %v times", n)
	}
}

func TestArenaCounts(t *testing.T) {
	a := NewArena()
	defer a.Close()
	for range 2 {
		if _, err := a.Alloc("staging", 5000); err != nil {
			t.Fatal(err)
		}
	}
	a.Count("kv_cache", 300)
	a.Count("kv_cache", -100)
	want := []doc.LedgerLine{{Name: "kv_cache", Bytes: 200}, {Name: "staging", Bytes: 10000}}
	if diff := cmp.Diff(want, a.Lines()); diff != "" {
		t.Error(diff)
	}
	if _, err := a.Alloc("staging", -1); err == nil {
		t.Error("a negative size is no error")
	}
}

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte("Name:\tx\nVmHWM:\t    1756 kB\nVmRSS:\t 1700 kB\nRssAnon:\t     112 kB\nThreads:\t1\n"))
	if want := (Usage{Resident: 1700 << 10, Anonymous: 112 << 10, Peak: 1756 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "VmHWM: 1 kB\nVmRSS: 1 kB\n", "VmHWM: kB\nVmRSS: 1 kB\nRssAnon: 1 kB\n", "VmHWM: 12\nVmRSS: 1 kB\nRssAnon: 1 kB\n"} {
		if u, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, u)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("VmHWM:\t    1756 kB\nVmRSS:\t 1700 kB\nRssAnon:\t     112 kB"))
	f.Add([]byte("VmHWM:99999999999999999999 kB\nVmRSS:1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if u, err := parseStatus(text); err == nil && (u.Resident < 0 || u.Anonymous < 0 || u.Peak < 0) {
			t.Errorf("%q: got %+v", text, u)
		}
	})
}

func TestParsePressure(t *testing.T) {
	for text, want := range map[string]int64{
		"some avg10=0.00 avg60=1.50 avg300=0.10 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n": 12345000,
		"some avg10=0.00 total=0\n": 0, "some avg10=0.00 total=1": 1000,
		"": 0, "full avg10=0.00 total=5\n": 0, "some total=x\n": 0, "some avg10=0\n total=3": 0, "some total=99999999999999999999": 0,
	} {
		if got := parsePressure([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
