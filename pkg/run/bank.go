package run

import (
	"context"
	"fmt"
	"time"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/stream"
	"substrate/pkg/trace"
)

// bank is the slots of one layer. A slot holds what is not resident of one
// expert's level. Which expert is where is a function of routing alone.
type bank struct {
	layer  int
	tier   int // as in doc.SlotLayer
	slots  []slot
	of     []int32 // by expert: its slot, -1 for none
	may    []bool  // by expert: it has an upgrade
	recent []int32 // what a choice begins with
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
	skeleton *arch.Weights // else what of it is resident, if mode fastest may use that
	streamed []expertPart  // and the parts of its level
	upgrade  []expertPart  // parts of its tier 1, where the layer's bank is of tier 1
}

// expertPart is one record of a level: resident, or in a slot.
type expertPart struct {
	resident *arch.Weights // nil: in the slot
	record   int32
	at       int64 // in the slot
	class    int   // of handles: equal for equal places and layouts
}

// fill begins the reads of an expert's parts into a slot. Whose slot it was is
// evicted.
func (r *Run) fill(b *bank, s int, e int32, parts []expertPart, class stream.Class) error {
	sl := &b.slots[s]
	evicted := sl.tag
	r.empty(b, sl)
	sl.tag = e
	b.of[e] = int32(s)
	sl.weights = arch.Weights{}
	for i := range parts {
		p := &parts[i]
		from := p.resident
		if from == nil {
			if err := r.manager.Hold(p.record, inSlots); err != nil {
				return err
			}
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
	return nil
}

// empty takes a slot from its expert, and reads of it that are under way back.
func (r *Run) empty(b *bank, sl *slot) {
	for i := range sl.n {
		r.reads.drop(&sl.reads[i])
		r.manager.Evict(sl.reads[i].record, inSlots)
	}
	if sl.tag >= 0 {
		b.of[sl.tag] = -1
	}
	sl.tag, sl.ready, sl.n = -1, false, 0
}

// awaitSlot waits for a slot's records, or until a deadline: then it reports
// false.
func (r *Run) awaitSlot(ctx context.Context, sl *slot, deadline time.Duration) (arrived bool, err error) {
	for i := range sl.n {
		arrived, err := r.reads.awaitUntil(ctx, &sl.reads[i], deadline)
		if err != nil || !arrived {
			return false, err
		}
	}
	sl.ready = true
	return true, nil
}

// join appends the matrices of one record of an expert.
func join(dst, part *arch.Weights) {
	for _, l := range [...][2]*backend.Linear{{&dst.Gate, &part.Gate}, {&dst.Up, &part.Up}, {&dst.Down, &part.Down}} {
		if l[1].N > 0 {
			l[0].Parts[l[0].N] = l[1].Parts[0]
			l[0].N++
		}
		if l[1].Bias != (backend.Vector{}) { // the skeleton's
			l[0].Bias = l[1].Bias
		}
	}
}

// victim is the slot to fill next: an empty one, else the one unused longest,
// none that is pinned; -1 if there is none. One that is still being read was
// given up at a deadline, in mode fastest, and is taken last: taking it waits.
func (b *bank) victim() int {
	best := -1
	for i := range b.slots {
		s := &b.slots[i]
		switch {
		case s.pinned:
		case s.tag < 0:
			return i
		case best < 0 || s.arrived() && !b.slots[best].arrived():
			best = i
		case s.used < b.slots[best].used && s.arrived() == b.slots[best].arrived():
			best = i
		}
	}
	return best
}

// moe runs a layer's router, its op n, and the experts that it picks. Those
// whose records are there compute while the others are read.
func (r *Run) moe(ctx context.Context, n int32, layer int, router *arch.Weights) error {
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
		if r.decoding {
			r.history.Note(layer, e, r.tokens)
		}
		if err := r.present(ctx, b, e, routes.Mass(e)); err != nil {
			return err
		}
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
	deadline := r.deadline(n)
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
			e := r.missing[done]
			if s := b.of[e]; done > from && s >= 0 && !b.slots[s].arrived() {
				break
			}
			if err := r.late(ctx, b, e, routes.Mass(e), deadline); err != nil {
				return err
			}
			done++
		}
		r.graph.RunExperts()
		for _, e := range r.missing[from:done] {
			if s := b.of[e]; s >= 0 {
				b.slots[s].pinned = false
			}
		}
		if issued < len(r.missing) {
			if issued, err = r.demand(b, issued); err != nil {
				return err
			}
		}
	}
	r.graph.Combine()
	for _, e := range routes.Experts {
		if err := r.observe(r.program.experts[layer][e]); err != nil {
			return err
		}
	}
	return nil
}

// present queues an expert whose weights are in memory, or notes it as missing.
func (r *Run) present(ctx context.Context, b *bank, e int32, mass float64) error {
	n := r.program.experts[b.layer][e]
	if err := r.raise(ctx, n); err != nil {
		return err
	}
	if r.active[n].weights != nil {
		r.graph.Expert(e, r.active[n].weights)
		r.served(n, r.active[n].tier, mass)
		return nil
	}
	own := r.program.ownTier(r.mode, n)
	if len(b.slots) > 0 && b.of[e] >= 0 {
		sl := &b.slots[b.of[e]]
		if !sl.ready && r.mode == Fastest && sl.arrived() {
			if _, err := r.awaitSlot(ctx, sl, never); err != nil {
				return err
			}
		}
		if sl.ready {
			if sl.tag != e {
				return fmt.Errorf("internal error: slot %d of layer %d holds expert %d, not %d", b.of[e], b.layer, sl.tag, e)
			}
			sl.pinned, sl.used = true, r.stepCount
			r.graph.Expert(e, &sl.weights)
			r.served(n, max(own, b.tier), mass)
			return nil
		}
	}
	if x := &r.experts[b.layer][e]; x.whole != nil {
		r.graph.Expert(e, x.whole)
		r.served(n, own, mass)
		return nil
	}
	r.missing = append(r.missing, e)
	return nil
}

// late queues an expert that was missing, when its records arrive or by its
// fallback.
func (r *Run) late(ctx context.Context, b *bank, e int32, mass float64, deadline time.Duration) error {
	n, x := r.program.experts[b.layer][e], &r.experts[b.layer][e]
	own := r.program.ownTier(r.mode, n)
	planned := r.program.ops[n].tiers[own].fallback
	deadline = planned.until(deadline)
	var sl *slot
	arrived := false
	if s := b.of[e]; s >= 0 {
		sl = &b.slots[s]
		var err error
		if arrived, err = r.awaitSlot(ctx, sl, deadline); err != nil {
			return err
		}
	}
	if !arrived {
		switch r.fallBack(n, own, planned, x.skeleton != nil, r.program.shared[b.layer]) {
		case SkeletonOnly:
			r.graph.Expert(e, x.skeleton)
			r.servedSkeleton(n, mass)
			return nil
		case SharedExpert:
			r.graph.Drop(e)
			return nil
		case AbortToken:
			return &DeadlineError{Op: r.program.ops[n].id, Tier: own}
		}
		if _, err := r.awaitSlot(ctx, sl, never); err != nil {
			return err
		}
	}
	r.graph.Expert(e, &sl.weights)
	r.served(n, own, mass)
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
		e := r.missing[first]
		s := int(b.of[e]) // under way since a token that did not wait for it
		if s < 0 {
			if s = b.victim(); s < 0 {
				return first, nil
			}
			if r.mode == Fastest && !b.slots[s].arrived() && r.canFallBack(b, e) {
				continue // taking the slot would wait for its read
			}
			if err := r.fill(b, s, e, r.experts[b.layer][e].streamed, stream.Demand); err != nil {
				return first, err
			}
		}
		b.slots[s].pinned, b.slots[s].used = true, r.stepCount
	}
	return first, nil
}

// canFallBack reports whether an expert has a fallback that needs no slot.
func (r *Run) canFallBack(b *bank, e int32) bool {
	n := r.program.experts[b.layer][e]
	planned := r.program.own(r.mode, n).fallback
	skeleton, shared := r.experts[b.layer][e].skeleton != nil, planned == SharedExpert && r.program.shared[b.layer]
	return r.decoding && planned != Stall && (skeleton || shared || planned == AbortToken)
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
