package stream

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a file behind a device that reads one request after another at a
// rate, in virtual time.
type disk struct {
	*fakeFile
	rate int64 // bytes per second
	turn chan struct{}
}

func newDisk(rate int64) *disk {
	return &disk{fakeFile: &fakeFile{data: randomBytes(1 << 20)}, rate: rate, turn: make(chan struct{}, 1)}
}

func (d *disk) ReadAt(p []byte, offset int64) (int, error) {
	d.turn <- struct{}{}
	time.Sleep(time.Duration(int64(len(p)) * int64(time.Second) / d.rate))
	<-d.turn
	return d.fakeFile.ReadAt(p, offset)
}

// want makes a request of a class.
func (d *disk) want(at, n int, class Class) *Request {
	q := request(d.fakeFile, at, n)
	q.File, q.Class = d, class
	return q
}

// A flood of look-aheads leaves half of the disk: what is demanded meanwhile
// waits for one of them at most, and they all come in the end. The twin without
// admission makes demand wait behind as many as there are workers.
func TestAdmissionKeepsDemandQuick(t *testing.T) {
	const rate, n = 1 << 20, 32 << 10 // one read takes 31.25 ms
	slowest := func(t *testing.T, forecast int64) (demand, last time.Duration) {
		d := newDisk(rate)
		r := NewReader(Options{Workers: 4, BytesPerSec: forecast})
		defer r.Close()
		var ahead []*Request
		for i := range 24 {
			ahead = append(ahead, d.want(i*n%(1<<19), n, LookAhead))
			r.Submit(ahead[i])
		}
		start := time.Now()
		for i := range 20 {
			time.Sleep(70 * time.Millisecond)
			q := d.want(i*1000, n, Demand)
			asked := time.Now()
			r.Submit(q)
			if err := r.Wait(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			demand = max(demand, time.Since(asked))
		}
		for {
			pending := 0
			for _, q := range ahead {
				if !q.Ready() {
					pending++
				}
			}
			if pending == 0 {
				return demand, time.Since(start)
			}
			time.Sleep(time.Millisecond)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		with, end := slowest(t, rate)
		without, _ := slowest(t, 0)
		if one := 31250 * time.Microsecond; with > 5*one || without <= with {
			t.Errorf("demand took up to %v of %v a read, %v without admission", with, one, without)
		}
		if end > 4*time.Second {
			t.Errorf("the look-aheads took %v", end)
		}
	})
}

// A read that was not admitted goes at once when somebody waits for it, and
// demand is never held back.
func TestAwaitedIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(1 << 30)
		r := NewReader(Options{Workers: 2, BytesPerSec: 4 << 10})
		defer r.Close()
		first, second, demand := d.want(0, 4096, Promotion), d.want(4096, 4096, Promotion), d.want(0, 1<<16, Demand)
		r.Submit(first)
		synctest.Wait()
		r.Submit(second)
		r.Submit(demand)
		time.Sleep(10 * time.Millisecond)
		if !first.Ready() || second.Ready() || !demand.Ready() {
			t.Errorf("ready: %v, %v, demand %v; want the second held back", first.Ready(), second.Ready(), demand.Ready())
		}
		start := time.Now()
		if err := r.Wait(t.Context(), second); err != nil || time.Since(start) > time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Whatever is asked and when, promotions and look-aheads begin no faster than
// their share of the rate over any window, and all of them end.
func TestWindowAgainstSums(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := &window{rate: 1000 * (1 + rng.Int64N(100))}
		type read struct{ at, bytes int64 }
		var all []read
		now := int64(0)
		for range 600 {
			now += rng.Int64N(int64(windowSpan) / 50)
			class, bytes := Class(rng.IntN(int(classes))), 1+rng.Int64N(w.rate/8)
			var sum int64
			n := 0
			for _, r := range all {
				if r.at > now-int64(windowSpan) {
					sum += r.bytes
					n++
				}
			}
			room := int64(float64(w.rate) * windowSpan.Seconds())
			want := true
			switch class {
			case Promotion:
				want = n == 0 || sum+bytes <= room
			case LookAhead:
				want = n == 0 || sum+bytes <= room/2
			}
			wait := w.admit(now, bytes, class)
			if (wait == 0) != want || wait < 0 || wait > int64(windowSpan) {
				t.Fatalf("seed %d: %s of %d bytes after %d of %d: wait %d", seed, class, bytes, sum, room, wait)
			}
			if wait == 0 {
				w.note(now, bytes)
				all = append(all, read{now, bytes})
			}
		}
	}
}

// WaitUntil gives up at its deadline and leaves the read under way; its buffer
// is whole later.
func TestWaitUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(1 << 16)
		clock := StartClock()
		r := NewReader(Options{Workers: 1, Clock: clock})
		defer r.Close()
		q := d.want(100, 1<<16, Promotion) // takes a second
		r.Submit(q)
		for _, until := range []time.Duration{300 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond} {
			from := clock.Now()
			done, err := r.WaitUntil(t.Context(), q, until)
			if done || err != nil || clock.Now() != max(until, from) {
				t.Errorf("until %v: %v, %v at %v", until, done, err, clock.Now())
			}
		}
		if done, err := r.WaitUntil(t.Context(), q, 2*time.Second); !done || err != nil || clock.Now() != time.Second {
			t.Errorf("%v, %v at %v", done, err, clock.Now())
		}
		if string(q.Buf) != string(d.data[100:100+1<<16]) {
			t.Error("wrong bytes")
		}
		time.Sleep(time.Second)
		if got := r.Totals(); got != (Totals{Reads: 1, Bytes: 1 << 16, BusyNs: 1e9}) {
			t.Errorf("%+v, want one read, busy for one second of two", got)
		}
	})
}

// A latency spike of one read delays that read alone, and a disk at a tenth of
// its rate shows in the busy time.
func TestSpikeAndSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spiky := &fakeFile{data: randomBytes(1 << 16), fault: func(call int, p []byte, _ int64) (int, error, bool) {
			if call == 0 {
				time.Sleep(2 * time.Second)
			}
			return 0, nil, false
		}}
		r := NewReader(Options{Workers: 2})
		defer r.Close()
		late, quick := request(spiky, 0, 4096), request(spiky, 4096, 4096)
		r.Submit(late)
		time.Sleep(time.Millisecond)
		r.Submit(quick)
		start := time.Now()
		if err := r.Wait(t.Context(), quick); err != nil || time.Since(start) != 0 {
			t.Errorf("the other read: %v after %v", err, time.Since(start))
		}
		if done, err := r.WaitUntil(t.Context(), late, time.Second); done || err != nil {
			t.Errorf("the spike: %v, %v", done, err)
		}
		if err := r.Wait(t.Context(), late); err != nil {
			t.Error(err)
		}
		slow := newDisk(1 << 18) // a tenth of 2.5 MiB/s
		before := r.Totals().BusyNs
		for i := range 8 {
			q := slow.want(i<<15, 1<<15, Demand)
			r.Submit(q)
			if err := r.Wait(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if got := float64(1<<18) / (float64(r.Totals().BusyNs-before) / 1e9); fmt.Sprintf("%.0f", got) != "262144" {
			t.Errorf("measured %v bytes per second", got)
		}
	})
}
