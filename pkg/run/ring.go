package run

import (
	"context"
	"fmt"
	"time"

	"substrate/pkg/stream"
)

// ring is the buffer that the records of non-resident dense ops pass through,
// in op order, again and again. Each op has a fixed place in it, so that its
// kernel handles are made once. Reads run ahead as far as there is room, over
// the ends of tokens too.
//
// Visits of places are numbered: visit v is of entry v mod n. Those in
// [done, submitted) are live: being read, ready, or in use.
type ring struct {
	reads     *reads
	manager   *ResidencyManager
	memory    []byte
	entries   []ringEntry
	done      int64
	submitted int64
	limit     int64 // no visit at or after it will be wanted
	left      int   // entries whose reads go on after their visit ended
}

// ringEntry is the place of one op.
type ringEntry struct {
	at, bytes int64
	parts     []ringPart
	left      bool // a visit ended before its reads did
}

type ringPart struct {
	record int32
	at     int64 // in the ring
	read   request
}

// layRing gives every op that streams its place in a ring of size bytes: one
// after another, from the start again where an op does not fit. It returns
// the entry of every op, -1 for none.
func (p *program) layRing(m Mode, res *residency) (entries []ringEntry, of []int) {
	of = make([]int, len(p.ops))
	for i := range of {
		of[i] = -1
	}
	last := p.lastStreamed(m, res)
	var at int64
	for _, n := range p.steps {
		level := p.own(m, n)
		bytes := p.streamed(res, level)
		if bytes == 0 {
			continue
		}
		if owner := p.ops[n].owner; owner != n {
			of[n] = of[owner]
			continue
		}
		if at+bytes > res.ring {
			at = 0
		}
		if k := len(entries); k > 1 && n == last {
			at = lastPlace(at, bytes, res.ring, &entries[0], &entries[k-1])
		}
		e := ringEntry{at: at, bytes: bytes}
		for _, i := range level.records {
			if !res.resident[i] {
				e.parts = append(e.parts, ringPart{record: i, at: at, read: newRequest()})
				at += p.records[i].bytes
			}
		}
		of[n] = len(entries)
		entries = append(entries, e)
	}
	return entries, of
}

// lastStreamed is the last op of a step that streams.
func (p *program) lastStreamed(m Mode, res *residency) int32 {
	last := int32(-1)
	for _, n := range p.steps {
		if p.ops[n].owner == n && p.streamed(res, p.own(m, n)) > 0 {
			last = n
		}
	}
	return last
}

// lastPlace finds a place for the last op of a step beside those of the op
// before it and of the first one, which is read while the last computes. Where
// there is none it takes the place at hand: then the two wait for each other.
func lastPlace(at, bytes, ring int64, first, before *ringEntry) int64 {
	for _, place := range [...]int64{at, first.at + first.bytes, before.at + before.bytes, ring - bytes} {
		e := ringEntry{at: place, bytes: bytes}
		if place >= 0 && place+bytes <= ring && !e.overlaps(first) && !e.overlaps(before) {
			return place
		}
	}
	return at
}

func (e *ringEntry) overlaps(o *ringEntry) bool { return e.at < o.at+o.bytes && o.at < e.at+e.bytes }

// ahead submits the next visits as far as their places are free.
func (r *ring) ahead() error {
	n := int64(len(r.entries))
	if r.left > 0 {
		if err := r.collect(); err != nil {
			return err
		}
	}
	for r.submitted < r.limit && r.submitted-r.done < n && r.free(&r.entries[r.submitted%n]) {
		e := &r.entries[r.submitted%n]
		for i := range e.parts {
			p := &e.parts[i]
			if err := r.manager.Hold(p.record, inRing); err != nil {
				return err
			}
			r.reads.submit(&p.read, p.record, r.memory[p.at:], stream.Prefetch, r.submitted)
		}
		r.submitted++
	}
	return nil
}

// free reports whether nobody writes or reads where e lies: no live visit, and
// no read that was left behind.
func (r *ring) free(e *ringEntry) bool {
	for v := r.done; v < r.submitted; v++ {
		if e.overlaps(&r.entries[v%int64(len(r.entries))]) {
			return false
		}
	}
	if r.left > 0 {
		for i := range r.entries {
			if o := &r.entries[i]; o.left && e.overlaps(o) {
				return false
			}
		}
	}
	return true
}

// collect takes the reads back that were left behind and have ended.
func (r *ring) collect() error {
	for i := range r.entries {
		e := &r.entries[i]
		if !e.left || !e.arrived() {
			continue
		}
		e.left = false
		r.left--
		for j := range e.parts {
			p := &e.parts[j]
			if err := r.reads.await(context.Background(), &p.read); err != nil {
				return err
			}
			r.manager.Evict(p.record, inRing)
		}
	}
	return nil
}

// arrived reports whether no read of the entry is under way.
func (e *ringEntry) arrived() bool {
	for i := range e.parts {
		if !e.parts[i].read.Ready() {
			return false
		}
	}
	return true
}

// acquire waits until the records of an entry, the next to visit, are there, or
// until a deadline: then it reports false.
func (r *ring) acquire(ctx context.Context, entry int, deadline time.Duration) (arrived bool, err error) {
	if got := int(r.done % int64(len(r.entries))); got != entry {
		return false, fmt.Errorf("internal error: the ring is at entry %d, not at %d", got, entry)
	}
	e := &r.entries[entry]
	r.limit = max(r.limit, r.done+1)
	if err := r.ahead(); err != nil {
		return false, err
	}
	for r.submitted == r.done { // a read that was left behind is in the way
		if err := r.settle(ctx, deadline); err != nil || r.left > 0 && deadline != never {
			return false, err
		}
		if err := r.ahead(); err != nil {
			return false, err
		}
	}
	for i := range e.parts {
		arrived, err := r.reads.awaitUntil(ctx, &e.parts[i].read, deadline)
		if err != nil || !arrived {
			return false, err
		}
	}
	return true, nil
}

// settle waits for the reads that were left behind.
func (r *ring) settle(ctx context.Context, deadline time.Duration) error {
	for i := range r.entries {
		e := &r.entries[i]
		if !e.left {
			continue
		}
		for j := range e.parts {
			arrived, err := r.reads.awaitUntil(ctx, &e.parts[j].read, deadline)
			if err != nil || !arrived {
				return err
			}
		}
	}
	return r.collect()
}

// leave ends the visit that acquire gave up. Its reads go on, and its place is
// taken until they end.
func (r *ring) leave() error {
	if r.submitted > r.done {
		r.entries[r.done%int64(len(r.entries))].left = true
		r.left++
	} else {
		r.submitted++
	}
	r.done++
	return r.ahead()
}

// release ends the visit that acquire or skip began: its records are evicted.
// No kernel may read its place any more.
func (r *ring) release() error {
	e := &r.entries[r.done%int64(len(r.entries))]
	for i := range e.parts {
		r.manager.Evict(e.parts[i].record, inRing)
	}
	r.done++
	return r.ahead()
}

// skip takes the reads of the next visit back: its op does not run.
func (r *ring) skip() error {
	if r.submitted > r.done {
		r.drop(&r.entries[r.done%int64(len(r.entries))])
	} else {
		r.submitted = r.done + 1
	}
	return r.release()
}

// drop takes an entry's reads back.
func (r *ring) drop(e *ringEntry) {
	for i := range e.parts {
		r.reads.drop(&e.parts[i].read)
		r.manager.Evict(e.parts[i].record, inRing)
	}
}

// restart takes all reads back and begins again at entry 0, with a number of
// visits to come.
func (r *ring) restart(visits int64) error {
	n := int64(len(r.entries))
	if n == 0 {
		return nil
	}
	for i := range r.entries {
		r.drop(&r.entries[i])
		r.entries[i].left = false
	}
	r.left = 0
	r.done = (r.submitted + n - 1) / n * n
	r.submitted = r.done
	r.limit = r.done + visits
	return r.ahead()
}
