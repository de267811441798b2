package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/stream"
)

// pool holds the records that escalated tiers add to their ops' own. The
// controller decides by bytes; the pool finds the places.
type pool struct {
	slab  backend.Slab
	held  []pooled // by place
	bound map[binding]*arch.Weights
	free  []request   // requests that no record uses
	extra [][][]int32 // by op and tier: the records that the tier adds
}

// pooled is a record in the pool.
type pooled struct {
	record    int32
	at, bytes int64
	read      request
}

// binding is an op's level at its places in the pool. Its handles are kept for
// the next time.
type binding struct {
	op    int32
	tier  int
	where [backend.MaxParts]int64
}

// openPool allocates the escalation pool and starts the controller.
func (r *Run) openPool() error {
	r.controller = NewTierController(r.plan)
	r.controller.OnChange = r.traceTier
	r.bundle, r.ofBundle = make([]int, len(r.program.ops)), make([]int32, len(r.plan.OpBundles))
	for i := range r.program.ops {
		r.bundle[i] = -1
		if n, ok := r.controller.Index(r.program.ops[i].id); ok && r.program.ops[i].owner == int32(i) {
			r.bundle[i] = n
		}
	}
	size := r.plan.PoolBytes
	if size == 0 { // no op can leave its tier
		r.controller = nil
		return nil
	}
	slab, err := r.backend.Alloc(size)
	if err != nil {
		return err
	}
	r.counted.Count(doc.LedgerPool, size)
	r.pool = &pool{slab: slab, bound: make(map[binding]*arch.Weights), extra: make([][][]int32, len(r.program.ops))}
	for n := range r.program.ops {
		for t := range r.program.ops[n].tiers {
			r.pool.extra[n] = append(r.pool.extra[n], r.added(int32(n), t))
		}
		if b := r.bundle[n]; b >= 0 {
			r.ofBundle[b] = int32(n)
		}
	}
	r.controller.ReadBytes = r.readBytes
	return nil
}

// readBytes is what an op's tier would have to read.
func (r *Run) readBytes(bundle, tier int) (bytes int64) {
	for _, i := range r.pool.extra[r.ofBundle[bundle]][tier] {
		if !r.manager.Present(i) {
			bytes += r.program.records[i].bytes
		}
	}
	return bytes
}

// find is the place of a record in the pool, -1 if it is not there.
func (p *pool) find(record int32) int {
	return slices.IndexFunc(p.held, func(h pooled) bool { return h.record == record })
}

// hold reserves the first gap of a size for a record and reports whether there
// is one.
func (p *pool) hold(record int32, bytes int64) (*pooled, bool) {
	var at int64
	for i := 0; i <= len(p.held); i++ {
		end := int64(len(p.slab.Bytes()))
		if i < len(p.held) {
			end = p.held[i].at
		}
		if end-at >= bytes {
			h := pooled{record: record, at: at, bytes: bytes}
			if n := len(p.free); n > 0 {
				h.read, p.free = p.free[n-1], p.free[:n-1]
			} else {
				h.read = newRequest()
			}
			p.held = slices.Insert(p.held, i, h)
			return &p.held[i], true
		}
		if i < len(p.held) {
			at = p.held[i].at + p.held[i].bytes
		}
	}
	return nil, false
}

// added lists the records that a tier of an op needs beyond its own level and
// the residents, which go into the pool.
func (r *Run) added(n int32, tier int) []int32 {
	own := r.program.own(r.mode, n)
	var records []int32
	for _, i := range r.program.ops[n].tiers[tier].records {
		if r.places[i].slab == nil && !slices.Contains(own.records, i) {
			records = append(records, i)
		}
	}
	return records
}

// fetch begins to read what an escalated op's tier needs, as far as the pool
// has places now.
func (r *Run) fetch(n int32, tier int) (whole bool, err error) {
	for _, i := range r.pool.extra[n][tier] {
		if r.pool.find(i) >= 0 {
			continue
		}
		h, ok := r.pool.hold(i, r.program.records[i].bytes)
		if !ok {
			return false, nil
		}
		if err := r.manager.Hold(i, inPool); err != nil {
			return false, err
		}
		r.reads.submit(&h.read, i, r.pool.slab.Bytes()[h.at:], stream.Promotion, r.stepCount)
	}
	return true, nil
}

// observe asks the verifier about an op that ran. An escalation takes effect
// at the next token; its reads start now.
func (r *Run) observe(n int32) error {
	if r.controller == nil || r.bundle[n] < 0 || !r.decoding || !r.escalates(n) {
		return nil
	}
	if r.mode == Fastest && r.monitor.Critical() {
		return nil // it was demoted for being too slow
	}
	r.controller.Observe(r.bundle[n], r.opt.Verifier.Disagreement(r.program.ops[n].id, r.graph))
	if to := r.controller.ActiveTier(r.bundle[n]); to > r.active[n].tier {
		_, err := r.fetch(n, to)
		return err
	}
	return nil
}

// escalates reports whether an op can leave its tier: not an expert whose own
// level streams, since its slot may be anybody's at the next token.
func (r *Run) escalates(n int32) bool {
	o := &r.program.ops[n]
	return o.kind != doc.KindMoEExpert || r.experts[o.layer][o.expert].whole != nil
}

// switchTiers makes the controller's choices act, at the start of a token. It
// waits for reads that are late: a run in mode scheduled never depends on them.
// In mode fastest what goes up waits for its op, see raise.
func (r *Run) switchTiers(ctx context.Context) error {
	if r.controller == nil {
		return nil
	}
	r.controller.EndToken()
	// First what went down gives its places back, then what went up takes its
	// own.
	for n := range r.active {
		if r.bundle[n] >= 0 && r.controller.ActiveTier(r.bundle[n]) != r.active[n].tier {
			r.release(int32(n), r.controller.ActiveTier(r.bundle[n]))
		}
	}
	for n := range r.active {
		if r.bundle[n] < 0 {
			continue
		}
		to := r.controller.ActiveTier(r.bundle[n])
		if to == r.active[n].tier {
			continue
		}
		whole, err := r.fetch(int32(n), to)
		if err != nil {
			return err
		}
		if !whole {
			// The bytes are there, in pieces too small.
			r.controller.demote(r.bundle[n], "evict")
			r.release(int32(n), 0)
			continue
		}
		if r.mode == Fastest {
			continue
		}
		if _, err := r.activate(ctx, int32(n), to, never); err != nil {
			return err
		}
	}
	return nil
}

// raise puts an op, about to run in mode fastest, on the tier that the
// controller chose, if its records are there by the op's deadline.
func (r *Run) raise(ctx context.Context, n int32) error {
	if r.mode != Fastest || r.controller == nil || r.bundle[n] < 0 || !r.decoding {
		return nil
	}
	to := r.controller.ActiveTier(r.bundle[n])
	if to <= r.active[n].tier {
		return nil
	}
	if whole, err := r.fetch(n, to); err != nil || !whole {
		return err
	}
	planned := r.program.ops[n].tiers[to].fallback
	arrived, err := r.activate(ctx, n, to, planned.until(r.deadline(n)))
	if err != nil || arrived {
		return err
	}
	// Its own tier is there in any case, or as late as it would have been.
	switch r.fallBack(n, to, planned, true, false) {
	case AbortToken:
		return &DeadlineError{Op: r.program.ops[n].id, Tier: to}
	case Stall:
		_, err = r.activate(ctx, n, to, never)
	}
	return err
}

// release gives back the places of an op that the tier it goes to does not
// need, and puts it at its own tier for now.
func (r *Run) release(n int32, to int) {
	keep := r.pool.extra[n][to]
	r.active[n] = activeTier{}
	for _, extra := range r.pool.extra[n] {
		for _, i := range extra {
			at := r.pool.find(i)
			if at < 0 || slices.Contains(keep, i) {
				continue
			}
			h := &r.pool.held[at]
			r.reads.drop(&h.read)
			r.pool.free = append(r.pool.free, h.read)
			r.pool.held = slices.Delete(r.pool.held, at, at+1)
			r.manager.Evict(i, inPool)
		}
	}
}

// activate waits for a tier's records, until a deadline, and puts its op on it.
func (r *Run) activate(ctx context.Context, n int32, tier int, deadline time.Duration) (arrived bool, err error) {
	key := binding{op: n, tier: tier}
	for j, i := range r.program.ops[n].tiers[tier].records {
		key.where[j] = -1
		at := r.pool.find(i)
		if at < 0 {
			continue
		}
		h := &r.pool.held[at]
		if arrived, err := r.reads.awaitUntil(ctx, &h.read, deadline); err != nil || !arrived {
			return false, err
		}
		key.where[j] = h.at
	}
	w := r.pool.bound[key]
	if w == nil {
		if w, err = r.bindTier(&key); err != nil {
			return false, err
		}
		r.pool.bound[key] = w
	}
	r.active[n] = activeTier{tier: tier, weights: w}
	return true, nil
}

// bindTier makes the handles of an op's tier with records at places in the
// pool.
func (r *Run) bindTier(key *binding) (*arch.Weights, error) {
	p, o := r.program, &r.program.ops[key.op]
	var parts []arch.Part
	streamed := 0
	for j, i := range o.tiers[key.tier].records {
		if key.where[j] < 0 {
			parts = append(parts, r.dense(key.op, i, &streamed))
		} else {
			parts = append(parts, p.part(i, place{r.pool.slab, key.where[j]}))
		}
	}
	w, err := arch.Bind(r.backend, o.kind, parts...)
	if err != nil {
		return nil, fmt.Errorf("op %s: %w", o.id, err)
	}
	return w, nil
}

// resetTiers puts every op at its own tier and empties the pool.
func (r *Run) resetTiers() {
	if r.controller == nil {
		return
	}
	r.controller.ForceDemoteAll()
	for n := range r.active {
		if r.bundle[n] >= 0 {
			r.release(int32(n), 0)
		}
	}
}

// traceTier writes the controller's changes to the trace.
func (r *Run) traceTier(c TierChange) {
	r.tierLine = doc.TierLine{
		TraceHead: r.reads.head(), Op: r.plan.OpBundles[c.Op].Op, From: c.From, To: c.To,
		Reason: c.Reason, Disagreement: c.Disagreement, PoolUsed: c.PoolUsed,
	}
	r.opt.Trace.Tier(&r.tierLine)
}
