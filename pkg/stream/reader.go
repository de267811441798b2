package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"substrate/internal/crc32c"
)

// ErrClosed is the error of requests that a reader's end overtook, and
// ErrCancelled of those that were taken back before a worker had them.
var (
	ErrClosed    = errors.New("the reader is closed")
	ErrCancelled = errors.New("the read was cancelled")
)

// Options size a reader.
type Options struct {
	// Workers is how many reads are under way at once; 0 means 4, which
	// saturates a disk with reads of a MiB.
	Workers int
	Clock   Clock
	// Requests is how many may be submitted and not yet done without the
	// queue growing; 0 means 64.
	Requests int
	// BytesPerSec is the rate that the disk sustains: promotions and
	// look-aheads are admitted by what the rest leaves of it. 0 admits all.
	BytesPerSec int64
}

// A Reader is a pool of workers and the queue before them. Submit, Wait and
// Cancel of one request are called by one goroutine.
type Reader struct {
	clock  Clock
	closed atomic.Bool // workers look at it in the middle of a long read

	mu      sync.Mutex
	wake    sync.Cond
	queue   queue
	window  window
	later   *time.Timer // wakes a worker for a read that was not admitted
	patient *time.Timer // of WaitUntil
	orders  uint64
	workers sync.WaitGroup

	under     int   // reads under way
	busySince int64 // while under > 0
	totals    Totals
}

// Totals is what a reader has done so far. Bytes over BusyNs is the rate of
// the disk.
type Totals struct {
	Reads  int64 // that ended
	Bytes  int64 // of them
	BusyNs int64 // with at least one read under way
}

// NewReader starts the workers.
func NewReader(o Options) *Reader {
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.Requests == 0 {
		o.Requests = 64
	}
	if o.Clock == nil {
		o.Clock = StartClock()
	}
	r := &Reader{clock: o.Clock, queue: make(queue, 0, o.Requests), window: window{rate: o.BytesPerSec}}
	r.wake.L = &r.mu
	r.later = time.AfterFunc(time.Hour, r.wake.Signal)
	r.later.Stop()
	r.patient = time.NewTimer(time.Hour)
	r.patient.Stop()
	for range o.Workers {
		r.workers.Go(r.work)
	}
	return r
}

// Submit queues a request. Its buffer belongs to the reader until Wait or
// Cancel returns.
func (r *Reader) Submit(q *Request) {
	if q.waiting {
		panic("internal error: a request was submitted twice")
	}
	q.waiting, q.awaited = true, false
	q.Err, q.ReadBytes, q.QueueNs, q.TimeNs = nil, 0, 0, 0
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		q.finish(ErrClosed)
		return
	}
	q.submitted = int64(r.clock.Now())
	q.order = r.orders
	r.orders++
	r.queue.push(q)
	r.wake.Signal()
}

// Wait blocks until the request is done and returns its error. A request that
// is still queued overtakes all that nobody waits for. If ctx ends, Wait returns its error
// and the request stays with the reader.
func (r *Reader) Wait(ctx context.Context, q *Request) error {
	if !q.waiting {
		return q.Err
	}
	if !q.Ready() {
		r.overtake(q)
	}
	select {
	case <-q.done:
		q.waiting = false
		return q.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitUntil is Wait with a deadline of the clock: past it, it returns false and
// the request stays with the reader, ahead of those that nobody waits for.
func (r *Reader) WaitUntil(ctx context.Context, q *Request, deadline time.Duration) (done bool, err error) {
	if q.Ready() {
		return true, r.Wait(ctx, q)
	}
	r.overtake(q)
	left := deadline - r.clock.Now()
	if left <= 0 {
		return false, nil
	}
	r.patient.Reset(left)
	defer r.patient.Stop()
	select {
	case <-q.done:
		q.waiting = false
		return true, q.Err
	case <-r.patient.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Totals returns the totals up to now.
func (r *Reader) Totals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.totals
	if r.under > 0 {
		t.BusyNs += int64(r.clock.Now()) - r.busySince
	}
	return t
}

// overtake lets a queued request go before all that nobody waits for.
func (r *Reader) overtake(q *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.index >= 0 {
		q.awaited = true
		r.queue.fix(q.index)
		r.wake.Signal() // it may not have been admitted before
	}
}

// Cancel takes a request back and reports whether it was done. One that a
// worker has already begun is waited for, since the worker writes its buffer.
func (r *Reader) Cancel(q *Request) bool {
	if !q.waiting {
		return true
	}
	r.mu.Lock()
	queued := q.index >= 0
	if queued {
		r.queue.remove(q)
	}
	r.mu.Unlock()
	if !queued {
		<-q.done
	}
	q.waiting = false
	if queued {
		q.Err = ErrCancelled
	}
	return !queued
}

// Close ends the workers. Requests that are queued end with ErrClosed; reads
// under way end at their next piece.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed.Store(true)
	for len(r.queue) > 0 {
		r.queue.pop().finish(ErrClosed)
	}
	r.later.Stop()
	r.wake.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}

// finish hands the request back.
func (q *Request) finish(err error) {
	q.Err = err
	q.done <- struct{}{}
}

// work serves requests until the reader is closed.
func (r *Reader) work() {
	for {
		q := r.take()
		if q == nil {
			return
		}
		start := int64(r.clock.Now())
		q.QueueNs = start - q.submitted
		err := r.read(q)
		q.TimeNs = int64(r.clock.Now()) - start
		r.rest(q)
		q.finish(err)
	}
}

// take waits for the next request that may be read; nil ends the worker.
func (r *Reader) take() *Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed.Load() {
		if len(r.queue) > 0 {
			q, now := r.queue[0], int64(r.clock.Now())
			wait := int64(0)
			if !q.awaited {
				wait = r.window.admit(now, int64(len(q.Buf)), q.Class)
			}
			if wait == 0 {
				r.queue.pop()
				r.window.note(now, int64(len(q.Buf)))
				if len(r.queue) > 0 { // perhaps admitted by the same wake-up
					r.wake.Signal()
				}
				if r.under++; r.under == 1 {
					r.busySince = now
				}
				return q
			}
			r.later.Reset(time.Duration(wait))
		}
		r.wake.Wait()
	}
	return nil
}

// rest ends a read's share of the disk's time.
func (r *Reader) rest(q *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Reads++
	r.totals.Bytes += q.ReadBytes
	if r.under--; r.under == 0 {
		r.totals.BusyNs += int64(r.clock.Now()) - r.busySince
	}
}

// read fills the request's buffer and checks it.
func (r *Reader) read(q *Request) error {
	if err := r.fill(q); err != nil {
		return fmt.Errorf("%s:%d: read %d bytes: %w", q.File.Name(), q.Offset, len(q.Buf), err)
	}
	if !q.Raw {
		return nil
	}
	if got := crc32c.Sum(q.Buf); got != q.CRC {
		return &CorruptError{File: q.File.Name(), Offset: q.Offset, Bytes: len(q.Buf), Want: q.CRC, Got: got}
	}
	return nil
}

const (
	// pieceBytes is the most that one call asks for: a closed reader does not
	// finish a read of a gigabyte.
	pieceBytes = 16 << 20
	// maxIdle is how many calls in a row may bring nothing.
	maxIdle = 8
)

// fill reads all of q.Buf.
func (r *Reader) fill(q *Request) error {
	align := q.File.Align()
	want := len(q.Buf)
	whole := (want + align - 1) &^ (align - 1)
	if whole > cap(q.Buf) {
		return fmt.Errorf("internal error: a buffer of %d bytes cannot be read in blocks of %d", cap(q.Buf), align)
	}
	buf := q.Buf[:whole]
	for at, idle := 0, 0; at < want; {
		if r.closed.Load() {
			return ErrClosed
		}
		n, err := q.File.ReadAt(buf[at:min(at+pieceBytes, whole)], q.Offset+int64(at))
		q.ReadBytes += int64(max(n, 0))
		switch {
		case err != nil && err != io.EOF:
			return err
		case at+n >= want:
			return nil
		}
		if n <= 0 || err == io.EOF {
			return fmt.Errorf("the file ends after %d: %w", at+max(n, 0), io.ErrUnexpectedEOF)
		}
		// After a short read go on at the last whole block.
		step := n &^ (align - 1)
		if at += step; step > 0 {
			idle = 0
		} else if idle++; idle == maxIdle {
			return io.ErrNoProgress
		}
	}
	return nil
}
