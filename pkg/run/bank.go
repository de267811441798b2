package run

import (
	"context"
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/stream"
	"substrate/pkg/trace"
)

// bank is the slots of one layer. A slot holds what is not resident of one
// expert's level. Which expert is where is a function of routing alone.
type bank struct {
	layer int
	tier  int // as in doc.SlotLayer
	slots []slot
	of    []int32 // by expert: its slot, -1 for none
}

// slot is memory for the records of one expert.
type slot struct {
	at     int64 // in the slots' slab
	tag    int32 // expert whose records are there or under way; -1: none
	ready  bool  // they may be used
	pinned bool  // a kernel of this step will read them
	used   int64 // step of the last use
	reads  [backend.MaxParts]request
	n      int // reads in use
	// weights are the tag's: resident parts and the slot's.
	weights arch.Weights
	parts   []*arch.Weights // handles of the slot's memory, by class
}

// expert is how one expert's weights come together.
type expert struct {
	whole    *arch.Weights // its own level, if all of it is resident
	streamed []expertPart  // else the parts of its level
	upgrade  []expertPart  // parts of its tier 1, where the layer's bank is of tier 1
	used     int64         // step of its last use
	chosen   bool          // while slots are given away
}

// expertPart is one record of a level: resident, or in a slot.
type expertPart struct {
	resident *arch.Weights // nil: in the slot
	record   int32
	at       int64 // in the slot
	class    int   // of handles: equal for equal places and layouts
}

// fill begins the reads of an expert's parts into a slot.
func (r *Run) fill(b *bank, s int, e int32, parts []expertPart, class stream.Class) {
	sl := &b.slots[s]
	evicted := sl.tag
	if evicted >= 0 {
		b.of[evicted] = -1
	}
	sl.tag, sl.ready, sl.n = e, false, 0
	b.of[e] = int32(s)
	sl.weights = arch.Weights{}
	for i := range parts {
		p := &parts[i]
		from := p.resident
		if from == nil {
			r.reads.submit(&sl.reads[sl.n], p.record, r.slots.Bytes()[sl.at+p.at:], class, r.stepCount)
			sl.n++
			from = sl.parts[p.class]
		}
		join(&sl.weights, from)
	}
	if r.reads.trace.Wants(trace.Full) {
		r.slotLine = doc.SlotLine{TraceHead: r.reads.head(), Layer: b.layer, Slot: s, Record: r.program.records[sl.reads[0].record].id}
		if evicted >= 0 {
			r.slotLine.Evicted = r.program.ops[r.program.experts[b.layer][evicted]].id
		}
		r.reads.trace.Slot(&r.slotLine)
	}
}

// await waits for a slot's records.
func (r *Run) awaitSlot(ctx context.Context, sl *slot) error {
	for i := range sl.n {
		if err := r.reads.await(ctx, &sl.reads[i]); err != nil {
			return err
		}
	}
	sl.ready = true
	return nil
}

// join appends the matrices of one record of an expert.
func join(dst, part *arch.Weights) {
	for _, l := range [...][2]*backend.Linear{{&dst.Gate, &part.Gate}, {&dst.Up, &part.Up}, {&dst.Down, &part.Down}} {
		if l[1].N > 0 {
			l[0].Parts[l[0].N] = l[1].Parts[0]
			l[0].N++
		}
	}
}

// victim is the slot to fill next: an empty one, else the one unused longest,
// none that is pinned; -1 if there is none.
func (b *bank) victim() int {
	best := -1
	for i := range b.slots {
		s := &b.slots[i]
		switch {
		case s.pinned:
		case s.tag < 0:
			return i
		case best < 0 || s.used < b.slots[best].used:
			best = i
		}
	}
	return best
}

// moe runs a layer's router and the experts that it picks. Those whose records
// are there compute while the others are read.
func (r *Run) moe(ctx context.Context, layer int, router *arch.Weights) error {
	routes, err := r.graph.Route(router)
	if err != nil {
		return err
	}
	if r.onRoute != nil {
		r.onRoute(layer, routes.Experts)
	}
	b := &r.banks[layer]
	r.missing = r.missing[:0]
	for _, e := range routes.Experts {
		x := &r.experts[layer][e]
		x.used = r.stepCount
		n := r.program.experts[layer][e]
		s := int32(-1)
		if len(b.slots) > 0 {
			s = b.of[e]
		}
		t := r.program.ownTier(r.mode, n)
		switch {
		case r.active[n].weights != nil:
			t = r.active[n].tier
			r.graph.Expert(e, r.active[n].weights)
		case s >= 0 && b.slots[s].ready:
			sl := &b.slots[s]
			if sl.tag != e {
				return fmt.Errorf("internal error: slot %d of layer %d holds expert %d, not %d", s, layer, sl.tag, e)
			}
			sl.pinned, sl.used = true, r.stepCount
			t = max(t, b.tier)
			r.graph.Expert(e, &sl.weights)
		case x.whole != nil:
			r.graph.Expert(e, x.whole)
		default:
			r.missing = append(r.missing, e)
		}
		r.served(n, t, routes.Mass(e))
	}
	issued, err := r.demand(b, 0)
	if err != nil {
		return err
	}
	r.graph.RunExperts()
	for i := range b.slots {
		if s := &b.slots[i]; s.ready {
			s.pinned = false
		}
	}
	for done := 0; done < len(r.missing); {
		if issued == done { // every slot was pinned until now
			if issued, err = r.demand(b, issued); err != nil {
				return err
			}
			if issued == done {
				return fmt.Errorf("internal error: layer %d has no slot for expert %d", layer, r.missing[done])
			}
		}
		// One that is late at least, and all that are there by now: the result
		// does not depend on how they are grouped.
		from := done
		for done < issued {
			sl := &b.slots[b.of[r.missing[done]]]
			if done > from && !sl.arrived() {
				break
			}
			if err := r.awaitSlot(ctx, sl); err != nil {
				return err
			}
			r.graph.Expert(r.missing[done], &sl.weights)
			done++
		}
		r.graph.RunExperts()
		for _, e := range r.missing[from:done] {
			b.slots[b.of[e]].pinned = false
		}
		if issued < len(r.missing) {
			if issued, err = r.demand(b, issued); err != nil {
				return err
			}
		}
	}
	r.graph.Combine()
	for _, e := range routes.Experts {
		r.observe(r.program.experts[layer][e])
	}
	return nil
}

// demand begins the reads of missing experts from number first on, as many as
// there are slots that nobody will read. It returns the number of the next.
func (r *Run) demand(b *bank, first int) (next int, err error) {
	if first == len(r.missing) {
		return first, nil
	}
	// The slots may still be read by kernels under way.
	if err := r.backend.Sync(); err != nil {
		return first, err
	}
	for ; first < len(r.missing); first++ {
		s := b.victim()
		if s < 0 {
			return first, nil
		}
		e := r.missing[first]
		r.fill(b, s, e, r.experts[b.layer][e].streamed, stream.Demand)
		b.slots[s].pinned, b.slots[s].used = true, r.stepCount
	}
	return first, nil
}

// arrived reports whether a slot's reads are done.
func (sl *slot) arrived() bool {
	for i := range sl.n {
		if !sl.reads[i].Ready() {
			return false
		}
	}
	return true
}
