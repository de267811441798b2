package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"substrate/internal/crc32c"
)

// fakeFile serves bytes from memory, after a delay and with faults.
type fakeFile struct {
	data  []byte
	align int
	delay time.Duration
	fault func(call int, p []byte, offset int64) (n int, err error, handled bool)

	mu     sync.Mutex
	calls  int
	served []int64 // offsets of calls, in order
}

func (f *fakeFile) Name() string { return "fake" }
func (f *fakeFile) Align() int   { return max(1, f.align) }

func (f *fakeFile) ReadAt(p []byte, offset int64) (int, error) {
	time.Sleep(f.delay)
	f.mu.Lock()
	call := f.calls
	f.calls++
	f.served = append(f.served, offset)
	f.mu.Unlock()
	if a := int64(f.Align()); offset%a != 0 || int64(len(p))%a != 0 {
		return 0, unix.EINVAL
	}
	if f.fault != nil {
		if n, err, handled := f.fault(call, p, offset); handled {
			return n, err
		}
	}
	if offset >= int64(len(f.data)) {
		return 0, io.EOF
	}
	return copy(p, f.data[offset:]), nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// request asks for bytes [at, at+n) of f.
func request(f *fakeFile, at, n int) *Request {
	q := NewRequest()
	q.File, q.Offset, q.Raw = f, int64(at), true
	q.Buf = make([]byte, n, (n+f.Align()-1)&^(f.Align()-1))
	q.CRC = crc32c.Sum(f.data[at:min(at+n, len(f.data))])
	return q
}

func TestShortReadsAndFaults(t *testing.T) {
	data := randomBytes(10000)
	short := func(most int) func(int, []byte, int64) (int, error, bool) {
		return func(call int, p []byte, offset int64) (int, error, bool) {
			return copy(p[:min(most, len(p))], data[offset:]), nil, true
		}
	}
	for _, tt := range []struct {
		name  string
		align int
		at, n int
		fault func(int, []byte, int64) (int, error, bool)
		want  string
		is    error
	}{
		{name: "whole", n: 10000},
		{name: "nothing asked"},
		{name: "a middle part", at: 5, n: 700},
		{name: "bytes at a time", n: 9999, fault: short(7)},
		{name: "aligned", align: 512, at: 512, n: 4096},
		{name: "aligned, tail at the end of the file", align: 512, at: 9728, n: 272},
		{name: "aligned, short by less than a block", align: 512, n: 4096, fault: short(1023)},
		{name: "aligned, never a block", align: 512, n: 4096, fault: short(511), want: "fake:0: read 4096 bytes: multiple Read calls return no data", is: io.ErrNoProgress},
		{name: "past the end", at: 9000, n: 2000, want: "fake:9000: read 2000 bytes: the file ends after 1000", is: io.ErrUnexpectedEOF},
		{name: "I/O error", n: 9000, fault: func(call int, p []byte, offset int64) (int, error, bool) {
			if call < 2 {
				return copy(p[:3000], data[offset:]), nil, true
			}
			return 0, unix.EIO, true
		}, want: "fake:0: read 9000 bytes: input/output error", is: unix.EIO},
		{name: "flipped bit", at: 8, n: 100, fault: func(call int, p []byte, offset int64) (int, error, bool) {
			n := copy(p, data[offset:])
			p[50] ^= 4
			return n, nil, true
		}, want: "fake:8: 100 bytes are corrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeFile{data: data, align: tt.align, fault: tt.fault}
			r := NewReader(Options{Workers: 1})
			defer r.Close()
			q := request(f, tt.at, tt.n)
			r.Submit(q)
			err := r.Wait(t.Context(), q)
			if tt.want == "" {
				if err != nil || string(q.Buf) != string(data[tt.at:tt.at+tt.n]) {
					t.Errorf("got %v, or wrong bytes", err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if _, corrupt := errors.AsType[*CorruptError](err); corrupt != (tt.name == "flipped bit") {
				t.Errorf("%v: corrupt is %v", err, corrupt)
			}
		})
	}
}

// One worker, busy while others queue up: the order of service is class, then
// deadline, then submission; a request that somebody waits for goes first.
func TestOrderOfService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{data: randomBytes(100), delay: time.Second}
		r := NewReader(Options{Workers: 1})
		defer r.Close()
		submit := func(at int, class Class, deadline int64) *Request {
			q := request(f, at, 1)
			q.Class, q.Deadline = class, deadline
			r.Submit(q)
			return q
		}
		first := submit(0, LookAhead, 9)
		time.Sleep(time.Millisecond) // the worker has it
		submit(1, LookAhead, 7)
		submit(2, Load, 1)
		submit(3, LookAhead, 5)
		submit(4, Promotion, 8)
		submit(5, Demand, 6)
		submit(6, LookAhead, 5)
		waited := submit(7, LookAhead, 8)
		start := time.Now()
		if err := r.Wait(t.Context(), waited); err != nil {
			t.Fatal(err)
		}
		// What is left of the first, then the one waited for.
		if got, want := time.Since(start), 2*time.Second-time.Millisecond; got != want {
			t.Errorf("waited %v, want %v", got, want)
		}
		if !first.Ready() || first.TimeNs != int64(time.Second) || waited.QueueNs != int64(time.Second-time.Millisecond) {
			t.Errorf("first took %d ns, waited queued %d ns", first.TimeNs, waited.QueueNs)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(f.served); got != "[0 7 5 4 3 6 1 2]" {
			t.Errorf("served %s", got)
		}
	})
}

// Reads overlap as far as there are workers.
func TestWorkersOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{data: randomBytes(100), delay: time.Second}
		r := NewReader(Options{Workers: 3})
		defer r.Close()
		var qs []*Request
		start := time.Now()
		for i := range 7 {
			qs = append(qs, request(f, i, 1))
			r.Submit(qs[i])
		}
		for _, q := range qs {
			if err := r.Wait(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("7 reads of 1 s by 3 workers took %v", got)
		}
	})
}

func TestCancelAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{data: randomBytes(100), delay: time.Second}
		r := NewReader(Options{Workers: 1})
		running, queued, left := request(f, 0, 10), request(f, 10, 10), request(f, 20, 10)
		for _, q := range []*Request{running, queued, left} {
			r.Submit(q)
		}
		synctest.Wait()
		if r.Cancel(queued) || queued.Err != ErrCancelled {
			t.Error("a queued request was done")
		}
		start := time.Now()
		if !r.Cancel(running) || running.Err != nil || time.Since(start) != time.Second {
			t.Errorf("a read under way: %v after %v", running.Err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := r.Wait(ctx, left); err != context.DeadlineExceeded || !left.Pending() {
			t.Errorf("wait past its context: %v", err)
		}
		more := request(f, 30, 10)
		r.Submit(more)
		r.Close()
		if err := r.Wait(t.Context(), more); err != ErrClosed {
			t.Errorf("queued at the end: %v", err)
		}
		if err := r.Wait(t.Context(), left); err != nil {
			t.Errorf("under way at the end, in its last piece: %v", err)
		}
		late := request(f, 0, 1)
		r.Submit(late)
		if err := r.Wait(t.Context(), late); err != ErrClosed {
			t.Errorf("after the end: %v", err)
		}
		if got := fmt.Sprint(f.served); got != "[0 20]" {
			t.Errorf("served %s", got)
		}
	})
}

// A closed reader gives up a long read at the next piece.
func TestCloseInALongRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{data: make([]byte, 3*pieceBytes), delay: time.Second}
		r := NewReader(Options{Workers: 1})
		q := request(f, 0, len(f.data))
		r.Submit(q)
		synctest.Wait()
		r.Close()
		if err := r.Wait(t.Context(), q); !errors.Is(err, ErrClosed) || len(f.served) != 1 {
			t.Errorf("got %v after %d calls", err, len(f.served))
		}
	})
}

// The heap serves in the order that sorting gives, whatever is added, taken
// out and moved.
func TestQueueAgainstSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 200 {
		var h queue
		var all []*Request
		for i := range r.IntN(60) {
			q := NewRequest()
			q.Class, q.Deadline, q.order = Class(r.IntN(int(classes))), r.Int64N(8), uint64(i)
			h.push(q)
			all = append(all, q)
			switch victim := all[r.IntN(len(all))]; r.IntN(4) {
			case 0:
				h.remove(victim)
				all = append(all[:indexOf(all, victim)], all[indexOf(all, victim)+1:]...)
			case 1:
				victim.awaited = true
				h.fix(victim.index)
			}
		}
		sort.SliceStable(all, func(i, j int) bool { return all[i].before(all[j]) })
		for i, want := range all {
			if got := h.pop(); got != want || got.index != -1 {
				t.Fatalf("request %d of %d is out of order", i, len(all))
			}
		}
	}
}

func indexOf(all []*Request, q *Request) int {
	for i := range all {
		if all[i] == q {
			return i
		}
	}
	return -1
}

// Random faults in virtual time: every request ends, its bytes are right or it
// has an error, and nothing is read twice without need.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng, faults := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
			data := randomBytes(1 << 16)
			var mu sync.Mutex
			f := &fakeFile{data: data, align: 512, fault: func(call int, p []byte, offset int64) (int, error, bool) {
				mu.Lock()
				kind, part, delay := faults.IntN(12), faults.IntN(len(p)+1), time.Duration(faults.IntN(1000))
				mu.Unlock()
				time.Sleep(delay * time.Millisecond)
				switch kind {
				case 0:
					return 0, unix.EIO, true
				case 1:
					n := copy(p, data[offset:])
					p[n/2] ^= 1
					return n, nil, true
				case 2, 3, 4:
					return copy(p[:part], data[offset:]), nil, part > 0
				}
				return 0, nil, false
			}}
			r := NewReader(Options{Workers: 1 + rng.IntN(4)})
			defer r.Close()
			qs := make([]*Request, 8)
			for i := range qs {
				qs[i] = request(f, 512*rng.IntN(64), 1+rng.IntN(4096))
			}
			failed := 0
			for range 100 {
				q := qs[rng.IntN(len(qs))]
				if q.Pending() {
					if rng.IntN(4) == 0 {
						r.Cancel(q)
					} else if err := r.Wait(t.Context(), q); err != nil {
						failed++
					} else if string(q.Buf) != string(data[q.Offset:q.Offset+int64(len(q.Buf))]) {
						t.Fatal("a read without an error brought wrong bytes")
					}
					continue
				}
				clear(q.Buf)
				q.Class, q.Deadline = Class(rng.IntN(int(classes))), rng.Int64N(100)
				r.Submit(q)
			}
			if failed == 100 {
				t.Error("no read succeeded")
			}
		})
	}
}
