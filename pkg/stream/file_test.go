package stream

import (
	"os"
	"path/filepath"
	"testing"

	"substrate/internal/crc32c"
	"substrate/internal/mem"
)

// writeFile makes a file of n bytes that is on the disk and not in the cache.
func writeFile(tb testing.TB, dir string, n int) (path string, data []byte) {
	data = randomBytes(n)
	path = filepath.Join(dir, "records.bin")
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		tb.Fatal(err)
	}
	dropCache(int(f.Fd()), 0, 0)
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path, data
}

// buffer returns aligned memory.
func buffer(tb testing.TB, n int) []byte {
	buf, err := mem.Map(int64(n))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mem.Unmap(buf) })
	return buf
}

// readWhole reads all of a file through a reader.
func readWhole(t *testing.T, f *StoreFile, data []byte) *Request {
	r := NewReader(Options{})
	defer r.Close()
	q := NewRequest()
	q.File, q.Buf, q.CRC, q.Raw = f, buffer(t, len(data)+4096)[:len(data)], crc32c.Sum(data), true
	r.Submit(q)
	if err := r.Wait(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if string(q.Buf) != string(data) {
		t.Error("wrong bytes")
	}
	return q
}

// A file system in memory has no direct reads; the file is read all the same.
func TestFileSystemWithoutDirectReads(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "stream")
	if err != nil {
		t.Skip("no tmpfs at /dev/shm")
	}
	defer os.RemoveAll(dir)
	path, data := writeFile(t, dir, 100_000)
	// A block size that no device has room for is refused too.
	for _, align := range []int{4096, 1} {
		f, err := Open(path, align)
		if err != nil {
			t.Fatal(err)
		}
		if f.Direct() && align == 1 {
			t.Error("direct reads at any alignment")
		}
		readWhole(t, f, data)
		f.Close()
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "missing"), 4096); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open("x", 100); err == nil {
		t.Error("alignment 100 is no error")
	}
}

// Nothing is allocated per read.
func TestNoAllocation(t *testing.T) {
	path, data := writeFile(t, t.TempDir(), 1<<16)
	f, err := Open(path, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := NewReader(Options{Workers: 2})
	defer r.Close()
	q := NewRequest()
	q.File, q.Buf, q.CRC, q.Raw = f, buffer(t, len(data)), crc32c.Sum(data), true
	n := testing.AllocsPerRun(100, func() {
		q.Class = LookAhead
		r.Submit(q)
		if err := r.Wait(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("a read allocates %v times", n)
	}
}

func BenchmarkRead(b *testing.B) {
	const size, depth = 1 << 20, 4
	path, data := writeFile(b, b.TempDir(), 64*size)
	f, err := Open(path, 4096)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := NewReader(Options{Workers: depth})
	defer r.Close()
	var qs [2 * depth]*Request
	for i := range qs {
		qs[i] = NewRequest()
		qs[i].File, qs[i].Buf, qs[i].Raw = f, buffer(b, size), true
	}
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		q := qs[i%len(qs)]
		if q.Pending() {
			if err := r.Wait(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
		at := i % 64 * size
		q.Offset, q.CRC = int64(at), crc32c.Sum(data[at:at+size])
		r.Submit(q)
	}
	for _, q := range qs {
		r.Cancel(q)
	}
}
