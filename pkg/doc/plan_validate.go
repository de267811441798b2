package doc

import (
	"cmp"
	"slices"
)

// Validate checks that the plan is well formed and holds the eight invariants
// of a PlanBundle:
//
//  1. references resolve
//  2. start_during of a prefetch precedes its deadline_before
//  3. the default path fits max_ram_bytes
//  4. per op, risk never rises with the tier
//  5. per op, peak_ram_delta_bytes never falls with the tier
//  6. the K largest tier-1 deltas fit the escalation pool
//  7. everything in the ledger together fits max_ram_bytes, in both modes
//  8. the records together fit max_ssd_cache_bytes, unless that is 0
//
// and that no tier goes below a pin.
//
// A plan that passes never exceeds its budget under its escalation policy.
func (p *Plan) Validate() error {
	v := planValidator{
		plan:    p,
		records: make(map[string]int, len(p.Catalog)),
		ops:     make(map[string]int, len(p.OpBundles)),
	}
	for _, step := range []func(){
		v.header, v.index, v.catalog, v.bundles, v.residencies, v.pool, v.totals, v.certificate, v.increments, v.pins,
	} {
		if step(); v.err != nil {
			return v.err
		}
	}
	return nil
}

// planValidator holds the indexes that the checks share.
type planValidator struct {
	checker
	plan      *Plan
	encodings map[string]bool
	records   map[string]int // id to index in the catalog
	ops       map[string]int // id to index in the bundles
}

func (v *planValidator) header() {
	p := v.plan
	for _, h := range []struct{ name, value string }{
		{"header_sha256", p.HeaderSHA256}, {"table_sha256", p.TableSHA256}, {"statistics_sha256", p.Statistics},
	} {
		if h.value != "" && !validHash(h.value) {
			v.fail(at(h.name), "%q is not a sha256 in lower-case hex", h.value)
		}
	}
	v.budget()
	switch p.Objective {
	case ObjectiveKL, ObjectiveCap:
	default:
		v.fail(at("objective"), "%q: want %q or %q", p.Objective, ObjectiveKL, ObjectiveCap)
	}
	if !validNumber(p.KVCacheKL, 0) {
		v.fail(at("kv_cache_kl"), "%v: want a finite number, not negative", p.KVCacheKL)
	}
	if p.PrefillChunk < 1 || p.PrefillChunk > MaxContextTokens {
		v.fail(at("prefill_chunk_tokens"), "%d: want 1 to %d", p.PrefillChunk, MaxContextTokens)
	}
	if p.SlotPeriod < 1 || p.SlotLead < 0 || p.SlotLead >= p.SlotPeriod {
		v.fail(at("slot_period_tokens"), "period %d and lead %d: want lead in [0, period)", p.SlotPeriod, p.SlotLead)
	}
	e := &p.Escalation
	if !validNumber(e.Threshold, 0) || e.PersistenceTokens < 0 || e.MaxConcurrent < 0 {
		v.fail(at("escalation_policy"), "threshold %v, persistence %d, max_concurrent %d: none may be negative",
			e.Threshold, e.PersistenceTokens, e.MaxConcurrent)
	}
	f := &p.Fallback
	if !validNumber(f.LatencyWarnFactor, 1) || !validNumber(f.LatencyCriticalFactor, 1) || !validNumber(f.SSDCriticalFactor, 0) {
		v.fail(at("fallback_policy"), "factors %v, %v, %v: want latency factors of at least 1 and none negative",
			f.LatencyWarnFactor, f.LatencyCriticalFactor, f.SSDCriticalFactor)
	}
	v.prediction("predicted", &p.Predicted)
	if p.PredictedExact != nil {
		v.prediction("predicted_exact", p.PredictedExact)
	}
}

func (v *planValidator) prediction(member string, q *Prediction) {
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"kl", q.KL}, {"kl_low", q.KLLow}, {"kl_high", q.KLHigh}, {"tokens_per_second", q.TokensPerSec},
		{"tokens_per_second_low", q.TokensPerSecLow}, {"tokens_per_second_high", q.TokensPerSecHigh},
		{"bits_per_weight", q.BitsPerWeight},
	} {
		if !validNumber(n.value, 0) {
			v.fail(at(member, n.name), "%v: want a finite number, not negative", n.value)
		}
	}
	for i, t := range q.SpeedTerms {
		if t.Name == "" || !validInteger(t.Ns, 0) {
			v.fail(at(member, "speed_terms", i), "term %q of %d ns: want a name and 0 to 2^53", t.Name, t.Ns)
		}
	}
	if !validInteger(q.ReadBytesPerToken, 0) || !validInteger(q.ReadBytesPerSec, 0) {
		v.fail(at(member), "read_bytes_per_token %d, read_bytes_per_second %d: want 0 to 2^53", q.ReadBytesPerToken, q.ReadBytesPerSec)
	}
}

func (v *planValidator) budget() {
	if err := v.plan.Budget.Validate(); err != nil {
		if v.err == nil {
			v.err = err
		}
	}
}

// index fills the maps and refuses what occurs twice.
func (v *planValidator) index() {
	p := v.plan
	var err error
	if v.encodings, err = indexEncodings(p.Encodings); err != nil {
		v.err = err
		return
	}
	for i := range p.Catalog {
		id := p.Catalog[i].ID
		if _, twice := v.records[id]; twice || id == "" {
			v.fail(at("tensor_catalog", i, "id"), "record %q occurs twice or is empty", id)
		}
		v.records[id] = i
	}
	if len(p.OpBundles) == 0 {
		v.fail(at("op_bundles"), "no ops: want at least one")
	}
	for i := range p.OpBundles {
		id := p.OpBundles[i].Op
		if _, twice := v.ops[id]; twice || id == "" {
			v.fail(at("op_bundles", i, "op"), "op %q occurs twice or is empty", id)
		}
		v.ops[id] = i
	}
}

func (v *planValidator) catalog() {
	p := v.plan
	for i := range p.Catalog {
		r := &p.Catalog[i]
		if _, ok := v.ops[r.Op]; !ok {
			v.fail(at("tensor_catalog", i, "op"), "invariant 1: record %q is of op %q, which has no bundle", r.ID, r.Op)
		}
		if !v.encodings[r.Encoding] {
			v.fail(at("tensor_catalog", i, "encoding"), "invariant 1: record %q has encoding %q, which is not in the plan", r.ID, r.Encoding)
		}
		if !validInteger(r.RAMBytes, 1) || !validInteger(r.SSDBytes, 1) {
			v.fail(at("tensor_catalog", i), "record %q has %d RAM and %d SSD bytes: want 1 to 2^53", r.ID, r.RAMBytes, r.SSDBytes)
		}
		if r.Below != "" {
			below, ok := v.records[r.Below]
			if !ok || p.Catalog[below].Op != r.Op || r.Below == r.ID {
				v.fail(at("tensor_catalog", i, "below"), "invariant 1: record %q adds to %q, which is no other record of op %q", r.ID, r.Below, r.Op)
			}
		}
	}
}

func (v *planValidator) bundles() {
	for i := range v.plan.OpBundles {
		b := &v.plan.OpBundles[i]
		if len(b.Tiers) < 1 || len(b.Tiers) > MaxTiers {
			v.fail(at("op_bundles", i, "tiers"), "op %q has %d tiers: want 1 to %d", b.Op, len(b.Tiers), MaxTiers)
			return
		}
		if !validKind(b.Kind) {
			v.fail(at("op_bundles", i, "kind"), "op %q is of kind %q, which is not known here", b.Op, b.Kind)
		}
		for t := range b.Tiers {
			v.tier(i, t)
			if v.err != nil {
				return
			}
		}
	}
}

func (v *planValidator) tier(i, t int) {
	b := &v.plan.OpBundles[i]
	tier := &b.Tiers[t]
	if tier.Index != t {
		v.fail(at("op_bundles", i, "tiers", t, "tier_index"), "op %q: tier_index %d at place %d", b.Op, tier.Index, t)
	}
	if !validNumber(tier.QualityRisk, 0) {
		v.fail(at("op_bundles", i, "tiers", t, "estimated_quality_risk"), "op %q tier %d: risk %v: want a finite number, not negative", b.Op, t, tier.QualityRisk)
	}
	if !validNumber(tier.Disagreement, 0) {
		v.fail(at("op_bundles", i, "tiers", t, "expected_disagreement"), "op %q tier %d: %v: want a finite number, not negative", b.Op, t, tier.Disagreement)
	}
	if !validInteger(tier.DeltaBytes, 0) || !validInteger(tier.ComputeNs, 0) {
		v.fail(at("op_bundles", i, "tiers", t), "op %q tier %d: peak_ram_delta_bytes %d, compute_ns %d: want 0 to 2^53", b.Op, t, tier.DeltaBytes, tier.ComputeNs)
	}
	switch tier.Fallback {
	case FallbackSkeletonOnly, FallbackSharedExpert, FallbackStall, FallbackAbortToken:
	default:
		v.fail(at("op_bundles", i, "tiers", t, "fallback"), "op %q tier %d: fallback %q is not known here", b.Op, t, tier.Fallback)
	}
	v.requires(i, t)
	v.prefetches(i, t)
	for j, id := range tier.EvictAfter {
		if !slices.Contains(tier.Requires, id) {
			v.fail(at("op_bundles", i, "tiers", t, "evict_after", j), "invariant 1: op %q tier %d evicts record %q, which it does not require", b.Op, t, id)
		}
	}
	if t == 0 {
		if tier.DeltaBytes != 0 {
			v.fail(at("op_bundles", i, "tiers", 0, "peak_ram_delta_bytes"), "op %q tier 0: delta %d: the default costs nothing above itself", b.Op, tier.DeltaBytes)
		}
		return
	}
	below := &b.Tiers[t-1]
	if tier.QualityRisk > below.QualityRisk {
		v.fail(at("op_bundles", i, "tiers", t, "estimated_quality_risk"), "invariant 4: op %q tier %d: risk %g rises above %g of tier %d", b.Op, t, tier.QualityRisk, below.QualityRisk, t-1)
	}
	if tier.DeltaBytes < below.DeltaBytes {
		v.fail(at("op_bundles", i, "tiers", t, "peak_ram_delta_bytes"), "invariant 5: op %q tier %d: delta of %d bytes falls below %d of tier %d", b.Op, t, tier.DeltaBytes, below.DeltaBytes, t-1)
	}
	var added int64
	for _, id := range tier.Requires {
		if !slices.Contains(b.Tiers[0].Requires, id) {
			added = addBytes(added, v.plan.Catalog[v.records[id]].RAMBytes)
		}
	}
	if v.err == nil && tier.DeltaBytes < added {
		v.fail(at("op_bundles", i, "tiers", t, "peak_ram_delta_bytes"), "invariant 5: op %q tier %d: delta of %d bytes, but the records it adds to tier 0 take %d", b.Op, t, tier.DeltaBytes, added)
	}
}

// requires checks that the records of a tier resolve, belong to the op, stack
// up and make the level that the tier names.
func (v *planValidator) requires(i, t int) {
	b := &v.plan.OpBundles[i]
	tier := &b.Tiers[t]
	encodings := make([]string, 0, len(tier.Requires))
	below := ""
	for j, id := range tier.Requires {
		place := at("op_bundles", i, "tiers", t, "requires", j)
		n, ok := v.records[id]
		if !ok {
			v.fail(place, "invariant 1: op %q tier %d requires record %q, which is not in the catalog", b.Op, t, id)
			return
		}
		r := &v.plan.Catalog[n]
		if r.Op != b.Op {
			v.fail(place, "invariant 1: op %q tier %d requires record %q of op %q", b.Op, t, id, r.Op)
		}
		if r.Below != below {
			v.fail(place, "invariant 1: op %q tier %d: record %q adds to %q, but stands on %q", b.Op, t, id, r.Below, below)
		}
		below = id
		encodings = append(encodings, r.Encoding)
	}
	if len(tier.Requires) == 0 {
		v.fail(at("op_bundles", i, "tiers", t, "requires"), "op %q tier %d requires no record", b.Op, t)
	}
	if got := LevelID(encodings); got != tier.Level {
		v.fail(at("op_bundles", i, "tiers", t, "level"), "invariant 1: op %q tier %d is of level %q, but its records make %q", b.Op, t, tier.Level, got)
	}
}

func (v *planValidator) prefetches(i, t int) {
	b := &v.plan.OpBundles[i]
	tier := &b.Tiers[t]
	for j, f := range tier.Prefetch {
		place := at("op_bundles", i, "tiers", t, "prefetch", j)
		if !slices.Contains(tier.Requires, f.Record) {
			v.fail(place, "invariant 1: op %q tier %d prefetches record %q, which it does not require", b.Op, t, f.Record)
		}
		start, ok := v.ops[f.StartDuring]
		deadline, ok2 := v.ops[f.DeadlineBefore]
		if !ok || !ok2 {
			v.fail(place, "invariant 1: op %q tier %d: prefetch of %q from op %q to op %q: not both have bundles", b.Op, t, f.Record, f.StartDuring, f.DeadlineBefore)
			return
		}
		if deadline > i {
			v.fail(place, "invariant 2: op %q tier %d: prefetch of %q is due before op %q, which runs later than the op itself", b.Op, t, f.Record, f.DeadlineBefore)
		}
		switch {
		case !f.WrapsToken && start >= deadline:
			v.fail(place, "invariant 2: op %q tier %d: prefetch of %q starts during op %q (place %d), which does not precede op %q (place %d)",
				b.Op, t, f.Record, f.StartDuring, start, f.DeadlineBefore, deadline)
		case f.WrapsToken && start < deadline:
			v.fail(place, "invariant 2: op %q tier %d: prefetch of %q from op %q (place %d) to op %q (place %d) reaches over more than a token",
				b.Op, t, f.Record, f.StartDuring, start, f.DeadlineBefore, deadline)
		}
	}
}

// residencies checks both modes: what is resident, slotted or passes through
// the ring has a place, and the ledger says so.
func (v *planValidator) residencies() {
	v.residency("scheduled", &v.plan.Scheduled, func(b *OpBundle) *Tier { return &b.Tiers[0] })
	v.residency("exact", &v.plan.Exact, func(b *OpBundle) *Tier { return &b.Tiers[len(b.Tiers)-1] })
	if v.err != nil {
		return
	}
	p := v.plan
	if !slices.Equal(p.Memory, p.Scheduled.Ledger) {
		v.fail(at("memory"), "differs from the ledger of the scheduled mode")
	}
	if sum := SumLedger(p.Memory); sum != p.PeakBytes {
		v.fail(at("predicted_peak_resident_bytes"), "%d bytes, but the ledger adds up to %d", p.PeakBytes, sum)
	}
}

func (v *planValidator) residency(mode string, r *Residency, tierOf func(*OpBundle) *Tier) {
	p := v.plan
	resident := make(map[string]bool, len(r.Resident))
	var weights int64
	for i, id := range r.Resident {
		n, ok := v.records[id]
		if !ok || resident[id] {
			v.fail(at(mode, "resident", i), "invariant 1: record %q is not in the catalog or occurs twice", id)
			return
		}
		resident[id] = true
		weights = addBytes(weights, p.Catalog[n].RAMBytes)
	}
	var slots int64
	layers := make(map[int]*SlotLayer, len(r.Slots))
	for i := range r.Slots {
		s := &r.Slots[i]
		if layers[s.Layer] != nil || s.Layer < 0 || s.Tier < 0 || s.Tier > 1 || s.Slots < 1 || !validInteger(s.SlotBytes, 1) || s.Slots > MaxExperts {
			v.fail(at(mode, "slots", i), "layer %d, tier %d, %d slots of %d bytes: want each layer once, tier 0 or 1, 1 to %d slots of at least 1 byte",
				s.Layer, s.Tier, s.Slots, s.SlotBytes, MaxExperts)
			return
		}
		layers[s.Layer] = s
		slots = addBytes(slots, mulBytes(int64(s.Slots), s.SlotBytes))
	}
	if !validInteger(r.RingBytes, 0) {
		v.fail(at(mode, "ring_bytes"), "%d: want 0 to 2^53", r.RingBytes)
	}
	for i := range p.OpBundles {
		b := &p.OpBundles[i]
		v.placed(mode, b, tierOf(b), r, resident, layers)
		if v.err != nil {
			return
		}
	}
	v.ledger(mode, r, weights, slots)
}

// placed checks that every record of the op's tier is resident or has a slot
// or passes through the ring.
func (v *planValidator) placed(mode string, b *OpBundle, tier *Tier, r *Residency, resident map[string]bool, layers map[int]*SlotLayer) {
	var streamed int64
	for _, id := range tier.Requires {
		if !resident[id] {
			streamed = addBytes(streamed, v.plan.Catalog[v.records[id]].RAMBytes)
		}
	}
	if streamed == 0 {
		return
	}
	if b.Kind != KindMoEExpert {
		if streamed > r.RingBytes {
			v.fail(at(mode, "ring_bytes"), "invariant 3: op %q tier %d streams %d bytes, the ring holds %d", b.Op, tier.Index, streamed, r.RingBytes)
		}
		return
	}
	s := layers[OpLayer(b.Op)]
	if s == nil || s.Tier != 0 || s.SlotBytes < streamed {
		v.fail(at(mode, "slots"), "invariant 3: op %q tier %d streams %d bytes, and its layer has no slots for them", b.Op, tier.Index, streamed)
	}
}

func (v *planValidator) ledger(mode string, r *Residency, weights, slots int64) {
	lines := make(map[string]int64, len(r.Ledger))
	for i, l := range r.Ledger {
		if _, twice := lines[l.Name]; twice || !validInteger(l.Bytes, 0) {
			v.fail(at(mode, "ledger", i), "line %q of %d bytes: want each line once, 0 to 2^53 bytes", l.Name, l.Bytes)
			return
		}
		lines[l.Name] = l.Bytes
	}
	want := []LedgerLine{{LedgerWeights, weights}, {LedgerSlots, slots}, {LedgerRing, r.RingBytes}}
	if mode == "scheduled" {
		want = append(want, LedgerLine{LedgerPool, v.plan.PoolBytes})
	}
	for _, w := range want {
		if lines[w.Name] != w.Bytes {
			v.fail(at(mode, "ledger"), "line %q has %d bytes, but the plan makes it %d", w.Name, lines[w.Name], w.Bytes)
		}
	}
	budget := v.plan.Budget.MaxRAMBytes
	if path := addBytes(addBytes(weights, slots), r.RingBytes); path > budget {
		v.fail(at(mode), "invariant 3: the path of mode %s takes %d bytes, max_ram_bytes is %d", mode, path, budget)
	}
	if sum := SumLedger(r.Ledger); sum > budget {
		v.fail(at(mode, "ledger"), "invariant 7: the ledger of mode %s adds up to %d bytes, max_ram_bytes is %d", mode, sum, budget)
	}
}

// pool checks that no K ops can escalate beyond the pool.
func (v *planValidator) pool() {
	p := v.plan
	if !validInteger(p.PoolBytes, 0) {
		v.fail(at("escalation_ram_pool_bytes"), "%d: want 0 to 2^53", p.PoolBytes)
		return
	}
	type delta struct {
		op    string
		bytes int64
	}
	var deltas []delta
	for i := range p.OpBundles {
		b := &p.OpBundles[i]
		if len(b.Tiers) > 1 {
			deltas = append(deltas, delta{b.Op, b.Tiers[1].DeltaBytes})
		}
		if n := len(b.Tiers); n > 2 && b.Tiers[2].DeltaBytes > p.PoolBytes {
			v.fail(at("op_bundles", i, "tiers", 2, "peak_ram_delta_bytes"), "invariant 6: op %q tier 2: delta of %d bytes exceeds the pool of %d", b.Op, b.Tiers[2].DeltaBytes, p.PoolBytes)
		}
	}
	slices.SortStableFunc(deltas, func(a, b delta) int { return cmp.Compare(b.bytes, a.bytes) })
	k := min(p.Escalation.MaxConcurrent, len(deltas))
	var sum int64
	for _, d := range deltas[:k] {
		sum = addBytes(sum, d.bytes)
	}
	if sum > p.PoolBytes {
		v.fail(at("escalation_ram_pool_bytes"), "invariant 6: the %d largest tier 1 deltas (op %q first) take %d bytes, the pool holds %d", k, deltas[0].op, sum, p.PoolBytes)
	}
}

func (v *planValidator) totals() {
	p := v.plan
	var disk int64
	for i := range p.Catalog {
		disk = addBytes(disk, p.Catalog[i].SSDBytes)
	}
	if limit := p.Budget.MaxSSDCacheBytes; limit > 0 && disk > limit {
		v.fail(at("tensor_catalog"), "invariant 8: the records take %d bytes on disk, max_ssd_cache_bytes is %d", disk, limit)
	}
}

// pins checks that ops have the precision that a pin says. Norms and routers
// are stored dense whatever their encoding.
func (v *planValidator) pins() {
	p := v.plan
	bits := make(map[string]int, len(p.Encodings))
	for i := range p.Encodings {
		bits[p.Encodings[i].ID] = p.Encodings[i].LeastBits()
	}
	for i := range p.Pins {
		pin := &p.Pins[i]
		if pin.Reason == "" || len(pin.Ops) == 0 || (pin.MinBits < 1) == (pin.Level == "") || pin.MinBits > maxPinBits {
			v.fail(at("pins", i), "min_bits %d, level %q, %d ops, reason %q: want one of bits and level, ops and a reason", pin.MinBits, pin.Level, len(pin.Ops), pin.Reason)
			return
		}
		for j, op := range pin.Ops {
			n, ok := v.ops[op]
			if !ok {
				v.fail(at("pins", i, "ops", j), "invariant 1: pin of op %q, which has no bundle", op)
				return
			}
			b := &p.OpBundles[n]
			if b.Kind == KindNorm || b.Kind == KindMoERouter {
				continue
			}
			for t := range b.Tiers {
				sum := 0
				for _, id := range b.Tiers[t].Requires {
					sum += bits[p.Catalog[v.records[id]].Encoding]
				}
				if sum < pin.MinBits || pin.Level != "" && b.Tiers[t].Level != pin.Level {
					v.fail(at("op_bundles", n, "tiers", t, "level"), "op %q tier %d: level %q of %d bits, pinned at %d bits or more, level %q: %s", op, t, b.Tiers[t].Level, sum, pin.MinBits, pin.Level, pin.Reason)
				}
			}
		}
	}
}

// Validate checks that a budget's numbers are sound.
func (b *Budget) Validate() error {
	var c checker
	if !validInteger(b.MaxRAMBytes, 1) {
		c.fail(at("budget", "max_ram_bytes"), "%d: want 1 to 2^53", b.MaxRAMBytes)
	}
	if !validInteger(b.MaxSSDCacheBytes, 0) {
		c.fail(at("budget", "max_ssd_cache_bytes"), "%d: want 0 to 2^53", b.MaxSSDCacheBytes)
	}
	if !validInteger(b.SSDBytesPerSec, 0) {
		c.fail(at("budget", "sustained_ssd_bw_bytes_per_sec"), "%d: want 0 to 2^53", b.SSDBytesPerSec)
	}
	if !validNumber(b.QualityLossCap, 0) {
		c.fail(at("budget", "quality_loss_cap"), "%v: want a finite number of nats, not negative", b.QualityLossCap)
	}
	if !validNumber(b.TargetTokensPerSec, 0) {
		c.fail(at("budget", "target_tokens_per_second"), "%v: want a finite number, not negative", b.TargetTokensPerSec)
	}
	if b.ContextTokens < 1 || b.ContextTokens > MaxContextTokens {
		c.fail(at("budget", "context_tokens"), "%d: want 1 to %d", b.ContextTokens, MaxContextTokens)
	}
	return c.err
}
