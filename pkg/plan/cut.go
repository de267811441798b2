package plan

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"substrate/pkg/doc"
)

// CutError says that a plan cannot be cut to a budget.
type CutError struct {
	MaxRAMBytes int64
	Least       int64 // the smallest budget that this plan can be cut to
}

func (e *CutError) Error() string {
	return fmt.Sprintf("the plan cannot be cut to %d bytes: with its residency it needs at least %d", e.MaxRAMBytes, e.Least)
}

// ExitCode is that of a "no".
func (e *CutError) ExitCode() int { return 1 }

// Cut re-budgets a plan along its increments, without the table: ops that are
// resident go down the hulls of their levels, least KL per byte first, until
// the plan fits max_ram_bytes, or up while there is room. What streams stays
// as it is. The certificate of the cut plan holds as that of the plan does: its
// bounds move by price times bytes. Errors: *CutError, or what Validate says.
func Cut(p *doc.Plan, maxRAM int64) (*doc.Plan, error) {
	if len(p.Increments) == 0 || p.Certificate == nil {
		return nil, &OptionError{"plan", fmt.Sprintf("strategy %q with objective %q leaves no increments to cut along", p.Strategy, p.Objective)}
	}
	c := newCutter(p)
	pool := p.PoolBytes
	for keep := true; ; keep = false {
		if !keep {
			pool = 0
		}
		c.reset()
		if !c.spend(maxRAM - p.PeakBytes + p.PoolBytes - pool) {
			if keep {
				continue // without escalations, then
			}
			return nil, &CutError{maxRAM, c.least() - p.PoolBytes}
		}
		d := c.plan(maxRAM, pool, keep)
		if err := d.Validate(); err == nil || !keep {
			return d, err
		}
	}
}

// cutter moves a plan's ops along their increments.
type cutter struct {
	before *doc.Plan
	at     []int // per op of the increments: index of the level
	start  []int
	first  []*doc.Tier // of those ops: the default
	slack  float64     // ns that a token may take longer; +Inf: any
	freed  int64       // bytes that the moves so far have given back
	lost   int64       // picoNats
	ns     float64     // that a token takes longer at most
}

func newCutter(p *doc.Plan) *cutter {
	c := &cutter{before: p, slack: math.Inf(1)}
	bundles := make(map[string]*doc.OpBundle, len(p.OpBundles))
	for i := range p.OpBundles {
		bundles[p.OpBundles[i].Op] = &p.OpBundles[i]
	}
	for i := range p.Increments {
		s := &p.Increments[i]
		c.first = append(c.first, &bundles[s.Op].Tiers[0])
		c.start = append(c.start, slices.Index(s.Levels, c.first[i].Level))
	}
	if limit := p.Certificate.TokenNs; limit > 0 {
		c.slack = max(0, float64(limit)-1e9/p.Predicted.TokensPerSec)
	}
	c.at = slices.Clone(c.start)
	return c
}

func (c *cutter) reset() {
	copy(c.at, c.start)
	c.freed, c.lost, c.ns = 0, 0, 0
}

// step moves op i of the increments to the next level up (1) or down (-1).
func (c *cutter) step(i, way int) {
	s, from := &c.before.Increments[i], c.at[i]
	c.at[i] += way
	c.freed += s.Bytes[from] - s.Bytes[c.at[i]]
	c.lost += s.PicoNats[c.at[i]] - s.PicoNats[from]
	c.ns += c.longer(i, from, c.at[i])
}

// longer is how much longer a run of op i takes at another level: in
// proportion to its bytes. A token may not reach an expert at all.
func (c *cutter) longer(i, from, to int) float64 {
	s := &c.before.Increments[i]
	return float64(c.first[i].ComputeNs) * float64(s.Bytes[to]-s.Bytes[from]) / float64(s.Bytes[c.start[i]])
}

// spend moves ops until the freed bytes and the room, which may be below zero,
// leave nothing over that a step could use. It reports whether that is at
// least zero.
func (c *cutter) spend(room int64) bool {
	var down, up moves
	push := func(h *moves, i, way int) {
		s, from := &c.before.Increments[i], c.at[i]
		to := from + way
		if from < 0 || to < 0 || to >= len(s.Levels) {
			return
		}
		slope := math.Abs(float64(s.PicoNats[to]-s.PicoNats[from])) / math.Abs(float64(s.Bytes[to]-s.Bytes[from]))
		heap.Push(h, move{item: i, ratio: slope * float64(way)})
	}
	for i := range c.at {
		push(&down, i, -1)
	}
	for room+c.freed < 0 && len(down) > 0 {
		i := heap.Pop(&down).(move).item
		c.step(i, -1)
		push(&down, i, -1)
	}
	for i := range c.at {
		push(&up, i, 1)
	}
	for len(up) > 0 {
		i := heap.Pop(&up).(move).item
		s := &c.before.Increments[i]
		if s.Bytes[c.at[i]+1]-s.Bytes[c.at[i]] <= room+c.freed && c.ns+c.longer(i, c.at[i], c.at[i]+1) <= c.slack {
			c.step(i, 1)
			push(&up, i, 1)
		}
	}
	return room+c.freed >= 0
}

// least is the budget that is left once every op is at its bottom.
func (c *cutter) least() int64 {
	least := c.before.PeakBytes
	for i, at := range c.start {
		if at >= 0 {
			least -= c.before.Increments[i].Bytes[at] - c.before.Increments[i].Bytes[0]
		}
	}
	return least
}

// plan writes the cut plan down, with the escalations that still make sense,
// or with none.
func (c *cutter) plan(maxRAM, pool int64, keep bool) *doc.Plan {
	d := *c.before
	d.Budget.MaxRAMBytes = maxRAM
	d.PoolBytes = pool
	d.Uniform = nil
	d.OpBundles = slices.Clone(d.OpBundles)
	moved := make(map[string]int, len(c.at)) // op to index of its increments
	for i := range c.at {
		if c.at[i] != c.start[i] {
			moved[d.Increments[i].Op] = i
		}
	}
	catalog := make(map[string]doc.CatalogRecord, len(d.Catalog))
	for _, r := range d.Catalog {
		catalog[r.ID] = r
	}
	renamed := map[string]string{} // default record of a moved op
	tops := map[string]string{}    // old record of the top tier to the new one
	d.Catalog = nil
	escalating := 0
	for i := range d.OpBundles {
		b := &d.OpBundles[i]
		old := b.Tiers
		b.Tiers = slices.Clone(old)
		if !keep {
			b.Tiers = b.Tiers[:1]
		}
		if n, ok := moved[b.Op]; ok {
			s := &d.Increments[n]
			level := s.Levels[c.at[n]]
			id := b.Op + ".skeleton"
			renamed[old[0].Requires[0]] = id
			catalog[id] = doc.CatalogRecord{ID: id, Op: b.Op, Encoding: level, RAMBytes: s.Bytes[c.at[n]], SSDBytes: s.Bytes[c.at[n]]}
			b.Tiers = c.ladder(b.Tiers, n, id, catalog)
		}
		top, oldTop := b.Tiers[len(b.Tiers)-1], old[len(old)-1]
		if len(top.Requires) == 1 && len(oldTop.Requires) == 1 {
			tops[oldTop.Requires[0]] = top.Requires[0]
		}
		if len(b.Tiers) > 1 {
			escalating++
		}
		seen := map[string]bool{}
		for _, t := range b.Tiers {
			for _, id := range t.Requires {
				if !seen[id] {
					seen[id] = true
					d.Catalog = append(d.Catalog, catalog[id])
				}
			}
		}
	}
	d.Escalation.MaxConcurrent = min(d.Escalation.MaxConcurrent, escalating)
	d.Scheduled = resident(d.Scheduled, renamed, catalog, pool)
	if keep {
		d.Exact = resident(d.Exact, tops, catalog, 0)
	} else {
		d.Exact = d.Scheduled
	}
	d.Memory = d.Scheduled.Ledger
	d.PeakBytes = doc.SumLedger(d.Memory)
	c.predict(&d)
	more := maxRAM - c.before.Budget.MaxRAMBytes + c.before.PoolBytes - pool
	d.Certificate = c.certificate(max(more, heldBy(&d)-c.before.Certificate.RAMBytes))
	return &d
}

// ladder is that of an op that moved: its new default, and the replacements
// above that lose less.
func (c *cutter) ladder(old []doc.Tier, n int, id string, catalog map[string]doc.CatalogRecord) []doc.Tier {
	s := &c.before.Increments[n]
	first := old[0]
	first.Level = s.Levels[c.at[n]]
	first.Requires = []string{id}
	first.QualityRisk = float64(s.PicoNats[c.at[n]]) * 1e-12
	first.ComputeNs = int64(float64(first.ComputeNs) * float64(s.Bytes[c.at[n]]) / float64(s.Bytes[c.start[n]]))
	tiers := []doc.Tier{first}
	for _, t := range old[1:] {
		below := &tiers[len(tiers)-1]
		if len(t.Requires) != 1 || t.Level == first.Level || t.QualityRisk > below.QualityRisk {
			continue
		}
		if t.DeltaBytes = catalog[t.Requires[0]].RAMBytes; t.DeltaBytes < below.DeltaBytes {
			continue
		}
		t.Index = len(tiers)
		tiers = append(tiers, t)
	}
	return tiers
}

// resident is a residency whose records were renamed, with the ledger that
// follows.
func resident(r doc.Residency, renamed map[string]string, catalog map[string]doc.CatalogRecord, pool int64) doc.Residency {
	r.Resident = slices.Clone(r.Resident)
	r.Ledger = slices.Clone(r.Ledger)
	var weights int64
	for i, id := range r.Resident {
		if to, ok := renamed[id]; ok {
			r.Resident[i] = to
		}
		weights += catalog[r.Resident[i]].RAMBytes
	}
	for i := range r.Ledger {
		switch l := &r.Ledger[i]; l.Name {
		case doc.LedgerWeights:
			l.Bytes = weights
		case doc.LedgerPool:
			l.Bytes = pool
		}
	}
	return r
}

// predict moves the predictions along: KL by the link; speed, which only the
// machine tells, by what there is to compute.
func (c *cutter) predict(d *doc.Plan) {
	d.PredictedExact = nil // of a residency that is no more
	q := &d.Predicted
	if l := d.Link; l != nil {
		kl := l.KL(float64(c.before.Certificate.Value+c.lost) * 1e-12)
		if q.KL > 0 {
			q.KLLow, q.KLHigh = q.KLLow*kl/q.KL, q.KLHigh*kl/q.KL
		}
		q.KL = kl
		q.KLLow, q.KLHigh = min(q.KLLow, kl), max(q.KLHigh, kl)
	}
	q.KLSource += ", cut"
	if c.ns > 0 && q.TokensPerSec > 0 {
		f := 1 / (1 + c.ns*q.TokensPerSec*1e-9)
		q.TokensPerSec, q.TokensPerSecLow = f*q.TokensPerSec, f*q.TokensPerSecLow
	}
	q.SpeedSource += ", cut"
}

// heldBy is what a plan takes for records, slots and the ring.
func heldBy(p *doc.Plan) (bytes int64) {
	for _, l := range p.Memory {
		switch l.Name {
		case doc.LedgerWeights, doc.LedgerSlots, doc.LedgerRing:
			bytes += l.Bytes
		}
	}
	return bytes
}

// certificate moves the bounds to so many bytes more.
func (c *cutter) certificate(more int64) *doc.Certificate {
	d := *c.before.Certificate
	d.RAMBytes = max(0, d.RAMBytes+more)
	d.Value = max(0, d.Value+c.lost)
	d.Modes = slices.Clone(d.Modes)
	streams := len(c.before.Scheduled.Slots) > 0 || c.before.Scheduled.RingBytes > 0
	least := int64(math.MaxInt64)
	for i := range d.Modes {
		m := &d.Modes[i]
		m.Bounds = slices.Clone(m.Bounds)
		best := int64(0)
		for j := range m.Bounds {
			b := &m.Bounds[j]
			moved := math.Ldexp(float64(b.RAM)*float64(more), -b.Shift)
			v := float64(b.LowerBound) - moved - 1e-12*math.Abs(moved) - 1
			b.LowerBound = int64(math.Floor(min(max(v, -doc.MaxInteger), doc.MaxInteger)))
			best = max(best, b.LowerBound)
		}
		slices.SortStableFunc(m.Bounds, func(a, b doc.DualBound) int { return cmp.Compare(b.LowerBound, a.LowerBound) })
		if m.RingMax > 0 || m.Slots {
			best += d.Charge
		}
		least = min(least, best)
	}
	if streams {
		least -= d.Charge
	}
	d.LowerBound = min(max(0, least), d.Value)
	d.BySearch = false
	d.RelativeGap = 0
	if d.Value > 0 {
		d.RelativeGap = float64(d.Value-d.LowerBound) / float64(d.Value)
	}
	return &d
}
