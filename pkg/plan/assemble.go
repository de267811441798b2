package plan

import (
	"fmt"
	"math"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// assemble writes a solution down as a plan and checks it.
func (s *solver) assemble(r *result) (*doc.Plan, error) {
	p := s.problem
	var up rungs
	if r.search != nil && s.opt.Objective == doc.ObjectiveKL {
		r, up = s.refine(r)
	} else {
		up = p.ladders(r.sol, p.free-r.use.ram())
	}
	ladders, pool := up.ladders, up.pool
	if err := p.trimDisk(ladders); err != nil {
		return nil, s.infeasible(err)
	}
	exact := p.fitExact(ladders, r.sol)
	if s.opt.Objective == doc.ObjectiveCap {
		pool = p.free - r.use.ram() // the original's rule: all that is left
	}
	d := &doc.Plan{
		Format:       doc.FormatPlan,
		Synthetic:    s.table.Synthetic || s.table.Profile.Synthetic,
		ModelID:      s.table.Profile.ModelID,
		HeaderSHA256: s.table.Profile.HeaderSHA256,
		TableSHA256:  s.opt.TableSHA256,
		Statistics:   s.table.Statistics,
		Strategy:     s.opt.Strategy,
		Objective:    s.opt.Objective,
		Budget:       s.budget,
		KVCacheType:  s.opt.KVCacheType,
		PrefillChunk: s.opt.PrefillChunk,
		Escalation:   doc.EscalationPolicy{Threshold: s.opt.Threshold, PersistenceTokens: s.opt.PersistenceTokens, MaxConcurrent: up.k},
		Fallback:     doc.FallbackPolicy{LatencyWarnFactor: 1.5, LatencyCriticalFactor: 3, SSDCriticalFactor: 0.5},
		PoolBytes:    pool,
		SlotPeriod:   s.opt.SlotPeriod,
		SlotLead:     s.opt.SlotLead,
		Pins:         s.pins,
		Annotations:  s.table.Notes,
	}
	if p.ops < len(p.items) {
		kv := &p.items[p.ops].levels[r.sol.picks[p.ops].level]
		d.KVCacheType, d.KVCacheKL = kv.id, kv.kl
	}
	a := assembler{solver: s, plan: d, sol: r.sol, ladders: ladders}
	for i, l := range ladders[:p.ops] {
		a.names = append(a.names, p.items[i].recordNames(l))
	}
	a.bundles()
	if r.search != nil && s.opt.Objective == doc.ObjectiveKL {
		link := s.table.Link
		d.Link, d.Increments = &link, a.increments()
	}
	a.encodings()
	d.Scheduled = a.residency(r.sol, func(ladder) int { return 0 })
	d.Scheduled.Ledger = s.ledger(&r.use, pool)
	d.Exact = a.residency(exact, func(l ladder) int { return len(l) - 1 })
	exactUse := p.use(exact)
	d.Exact.Ledger = s.ledger(&exactUse, 0)
	d.Memory = d.Scheduled.Ledger
	d.PeakBytes = doc.SumLedger(d.Memory)
	d.Predicted = s.predict(&r.use, ladders)
	inExact := s.predict(&exactUse, ladders)
	d.PredictedExact = &inExact
	d.Uniform = s.uniformControl(r.use.ram())
	if r.search != nil && s.opt.Objective == doc.ObjectiveKL {
		d.Certificate = s.certificate(r)
	}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("internal error: the plan breaks its own rules: %w", err)
	}
	return d, nil
}

// ledger is what a run takes in all.
func (s *solver) ledger(u *usage, pool int64) []doc.LedgerLine {
	fixed := s.fixed
	fixed.KV += u.kv
	return footprint.Ledger(fixed, footprint.Holdings{Weights: u.weights, Slots: u.slots, Ring: u.ring, Pool: pool})
}

// assembler writes the parts of a plan that need all of a solution.
type assembler struct {
	*solver
	plan    *doc.Plan
	sol     *solution
	ladders []ladder
	names   [][][]string // records of each item and tier
}

// bundles writes the ladders and the records that they need.
func (a *assembler) bundles() {
	p := a.problem
	before := a.streamOrder()
	router, shared := a.neighbours()
	a.plan.OpBundles = make([]doc.OpBundle, p.ops)
	for i := range p.ops {
		it := &p.items[i]
		b := &a.plan.OpBundles[i]
		b.Op, b.Kind = it.op.ID, it.op.Kind
		b.Tiers = make([]doc.Tier, len(a.ladders[i]))
		for t, l := range a.ladders[i] {
			level := &it.levels[l]
			b.Tiers[t] = doc.Tier{
				Index:       t,
				Level:       level.id,
				Requires:    a.names[i][t],
				Prefetch:    []doc.Prefetch{},
				EvictAfter:  []string{},
				Fallback:    p.fallback(a.sol, i, t, shared[it.op.Layer]),
				DeltaBytes:  it.delta(a.ladders[i], t),
				QualityRisk: level.kl,
				ComputeNs:   int64(level.computeNs + p.speeds.dispatchNs),
			}
			a.records(i, t)
		}
		a.window(&b.Tiers[0], i, before, router)
	}
}

// records appends the records of a tier that the lower ones do not have.
func (a *assembler) records(i, t int) {
	it, names := &a.problem.items[i], a.names[i]
	l := &it.levels[a.ladders[i][t]]
	for j, id := range names[t] {
		if slices.ContainsFunc(names[:t], func(below []string) bool { return slices.Contains(below, id) }) {
			continue
		}
		r := doc.CatalogRecord{ID: id, Op: it.op.ID, Encoding: l.encodings[j], RAMBytes: l.records[j], SSDBytes: l.records[j]}
		if j > 0 {
			r.Below = names[t][j-1]
		}
		a.plan.Catalog = append(a.plan.Catalog, r)
	}
}

// streamOrder maps each dense op that streams to the one before it, cyclically.
func (a *assembler) streamOrder() map[int]int {
	var order []int
	for i := range a.problem.items {
		if a.problem.layerOf[i] < 0 && a.problem.items[i].streamed(a.sol.picks[i]) > 0 {
			order = append(order, i)
		}
	}
	before := make(map[int]int, len(order))
	for j, i := range order {
		before[i] = order[(j+len(order)-1)%len(order)]
	}
	return before
}

// neighbours gives each layer's router item, and whether it has a shared
// expert.
func (a *assembler) neighbours() (router map[int]int, shared map[int]bool) {
	router, shared = map[int]int{}, map[int]bool{}
	for i := range a.problem.ops {
		switch op := a.problem.items[i].op; op.Kind {
		case doc.KindMoERouter:
			router[op.Layer] = i
		case doc.KindMoEShared:
			shared[op.Layer] = true
		}
	}
	return router, shared
}

// window says when the default's streamed records are read and dropped. The
// ring holds the records of two ops, so that those of one are read while the
// streamed op before it computes. Experts are known once the router ran.
func (a *assembler) window(t *doc.Tier, i int, before, router map[int]int) {
	p := a.problem
	k := a.sol.picks[i]
	if p.items[i].streamed(k) == 0 {
		return
	}
	start := i
	if p.layerOf[i] < 0 {
		start = before[i]
	} else if r, ok := router[p.items[i].op.Layer]; ok {
		start = r
	}
	for _, id := range t.Requires[k.resident:] {
		t.Prefetch = append(t.Prefetch, doc.Prefetch{
			Record:         id,
			StartDuring:    p.items[start].op.ID,
			DeadlineBefore: p.items[i].op.ID,
			WrapsToken:     start >= i,
		})
		if p.layerOf[i] < 0 {
			t.EvictAfter = append(t.EvictAfter, id)
		}
	}
}

// encodings lists those that the catalog or the increments use, in the table's
// order.
func (a *assembler) encodings() {
	used := map[string]bool{}
	for i := range a.plan.Increments {
		for _, level := range a.plan.Increments[i].Levels {
			used[level] = true // of one record
		}
	}
	for i := range a.plan.Catalog {
		used[a.plan.Catalog[i].Encoding] = true
	}
	a.plan.Encodings = []doc.Encoding{}
	for _, e := range a.table.Encodings {
		if used[e.ID] {
			a.plan.Encodings = append(a.plan.Encodings, e)
		}
	}
}

// residency writes down where a solution's records live; tier picks the rung
// that the mode runs at.
func (a *assembler) residency(s *solution, tier func(ladder) int) doc.Residency {
	p := a.problem
	r := doc.Residency{Resident: []string{}, Slots: []doc.SlotLayer{}, RingBytes: footprint.RingBytes(p.ringOps(s))}
	for i := range p.ops {
		names := a.names[i][tier(a.ladders[i])]
		r.Resident = append(r.Resident, names[:s.picks[i].resident]...)
	}
	for n, b := range s.banks {
		if b.slots > 0 {
			r.Slots = append(r.Slots, doc.SlotLayer{Layer: p.layers[n].layer, Tier: b.tier, Slots: b.slots, SlotBytes: b.bytes})
		}
	}
	return r
}

// predict says what to expect of the default path.
func (s *solver) predict(u *usage, ladders []ladder) doc.Prediction {
	link := &s.table.Link
	q := doc.Prediction{
		KL:                link.KL(u.kl),
		KLSource:          klSource(s.table),
		TokensPerSec:      1e9 / u.timeNs(),
		SpeedSource:       s.problem.speeds.source,
		ReadBytesPerToken: int64(u.readBytes),
	}
	// Two standard errors of the items, the link's own error, and what int8
	// activations add on a backend that has them.
	se := 2 * math.Sqrt(max(0, u.variance))
	q.KLLow = link.KL(max(0, u.kl-se)) * max(0, 1-link.Error)
	q.KLHigh = link.KL(u.kl+se)*(1+link.Error) + s.table.Int8KL*(1+link.Error)
	q.SpeedTerms = s.problem.speeds.terms(u, s.problem.dispatchNs)
	if ns := u.ringNs + u.demandNs; ns > 0 && len(s.problem.speeds.ahead) > 0 {
		q.ReadBytesPerSec = int64(u.readBytes / ns * 1e9)
	}
	q.TokensPerSecLow = q.TokensPerSec / speedBand
	q.TokensPerSecHigh = q.TokensPerSec * speedBand
	if n := s.table.Profile.Parameters; n > 0 {
		q.BitsPerWeight = 8 * float64(u.disk) / float64(n)
	}
	return q
}

// picoNats rounds nats to integers of 1e-12, between 0 and 2^53.
func picoNats(round func(float64) float64, nats float64) int64 {
	return int64(min(max(0, round(nats*1e12)), doc.MaxInteger))
}
