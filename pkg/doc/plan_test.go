package doc_test

import (
	"math"
	"strings"
	"testing"

	"substrate/pkg/doc"
)

const (
	q2 = "q2g64-bf16-lsq1"
	q4 = "q4g64-bf16-lsq1"
	r2 = "r2g64-bf16-lsq1"
)

// validPlan is small and has one of everything: a resident embedding, an
// attention that streams through the ring, an MLP with three tiers, experts
// in slots.
func validPlan() *doc.Plan {
	record := func(op, name, encoding, below string, bytes int64) doc.CatalogRecord {
		r := doc.CatalogRecord{ID: op + "." + name, Op: op, Encoding: encoding, RAMBytes: bytes, SSDBytes: bytes}
		if below != "" {
			r.Below = op + "." + below
		}
		return r
	}
	tier := func(op string, index int, level string, delta int64, risk float64, names ...string) doc.Tier {
		t := doc.Tier{Index: index, Level: level, DeltaBytes: delta, QualityRisk: risk, Fallback: doc.FallbackStall, Prefetch: []doc.Prefetch{}, EvictAfter: []string{}}
		for _, n := range names {
			t.Requires = append(t.Requires, op+"."+n)
		}
		return t
	}
	encoding := func(id string, bits int, residual bool) doc.Encoding {
		return doc.Encoding{ID: id, Bits: bits, Group: 64, Scale: "bf16", Fit: "lsq", FitVersion: 1, Residual: residual}
	}
	attn := tier("block_0.attn", 0, q4, 0, 0.02, "skeleton")
	attn.Prefetch = []doc.Prefetch{{Record: "block_0.attn.skeleton", StartDuring: "embedding", DeadlineBefore: "block_0.attn"}}
	attn.EvictAfter = []string{"block_0.attn.skeleton"}
	ledger := []doc.LedgerLine{
		{Name: doc.LedgerWeights, Bytes: 4096 + 8192},
		{Name: doc.LedgerSlots, Bytes: 2 * 4096},
		{Name: doc.LedgerRing, Bytes: 3 * 8192},
		{Name: doc.LedgerPool, Bytes: 16384},
		{Name: doc.LedgerProcessBase, Bytes: 4096},
	}
	exact := []doc.LedgerLine{
		{Name: doc.LedgerWeights, Bytes: 4096 + 16384},
		{Name: doc.LedgerSlots, Bytes: 2 * 4096},
		{Name: doc.LedgerRing, Bytes: 3 * 8192},
		{Name: doc.LedgerProcessBase, Bytes: 4096},
	}
	slots := []doc.SlotLayer{{Layer: 1, Tier: 0, Slots: 2, SlotBytes: 4096}}
	p := &doc.Plan{
		Format: doc.FormatPlan, ModelID: "m", Strategy: "optimal", Objective: doc.ObjectiveKL,
		Budget:      doc.Budget{MaxRAMBytes: 1 << 17, MaxSSDCacheBytes: 1 << 20, QualityLossCap: 1, ContextTokens: 128},
		KVCacheType: "f16", PrefillChunk: 32,
		Encodings: []doc.Encoding{encoding(q2, 2, false), encoding(q4, 4, false), encoding(r2, 2, true)},
		Catalog: []doc.CatalogRecord{
			record("embedding", "skeleton", q4, "", 4096),
			record("block_0.attn", "skeleton", q4, "", 8192),
			record("block_0.mlp", "skeleton", q2, "", 8192),
			record("block_0.mlp", "residual_1", r2, "skeleton", 8192),
			record("block_0.mlp", "level_2", q4, "", 16384),
			record("block_1.expert_0", "skeleton", q2, "", 4096),
			record("block_1.expert_1", "skeleton", q2, "", 4096),
		},
		OpBundles: []doc.OpBundle{
			{Op: "embedding", Kind: doc.KindEmbedding, Tiers: []doc.Tier{tier("embedding", 0, q4, 0, 0.01, "skeleton")}},
			{Op: "block_0.attn", Kind: doc.KindAttention, Tiers: []doc.Tier{attn}},
			{Op: "block_0.mlp", Kind: doc.KindMLPDense, Tiers: []doc.Tier{
				tier("block_0.mlp", 0, q2, 0, 0.3, "skeleton"),
				tier("block_0.mlp", 1, q2+"+"+r2, 8192, 0.2, "skeleton", "residual_1"),
				tier("block_0.mlp", 2, q4, 16384, 0.1, "level_2"),
			}},
			{Op: "block_1.expert_0", Kind: doc.KindMoEExpert, Tiers: []doc.Tier{tier("block_1.expert_0", 0, q2, 0, 0.1, "skeleton")}},
			{Op: "block_1.expert_1", Kind: doc.KindMoEExpert, Tiers: []doc.Tier{tier("block_1.expert_1", 0, q2, 0, 0.1, "skeleton")}},
		},
		Escalation: doc.EscalationPolicy{Threshold: 0.15, PersistenceTokens: 32, MaxConcurrent: 1},
		Fallback:   doc.FallbackPolicy{LatencyWarnFactor: 1.5, LatencyCriticalFactor: 3, SSDCriticalFactor: 0.5},
		PoolBytes:  16384,
		Scheduled:  doc.Residency{Resident: []string{"embedding.skeleton", "block_0.mlp.skeleton"}, Slots: slots, RingBytes: 3 * 8192, Ledger: ledger},
		Exact:      doc.Residency{Resident: []string{"embedding.skeleton", "block_0.mlp.level_2"}, Slots: slots, RingBytes: 3 * 8192, Ledger: exact},
		SlotPeriod: 16, SlotLead: 4,
		Memory: ledger,
		Predicted: doc.Prediction{KL: 0.5, KLLow: 0.4, KLHigh: 0.6, KLSource: "measured", TokensPerSec: 10, TokensPerSecLow: 8,
			TokensPerSecHigh: 12, SpeedSource: "measured", BitsPerWeight: 3},
	}
	p.PeakBytes = doc.SumLedger(ledger)
	return p
}

func TestPlanValidates(t *testing.T) {
	p := validPlan()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	p.Pins = []doc.PlanPin{{Reason: "a block", MinBits: 2, Ops: []string{"block_0.attn", "block_0.mlp"}}, {Reason: "a head", Level: q4, Ops: []string{"embedding"}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
}

// setLedger changes a line in the ledgers of a mode so that all sums agree.
func setLedger(p *doc.Plan, name string, bytes int64) {
	lines := append([]doc.LedgerLine(nil), p.Scheduled.Ledger...)
	for i := range lines {
		if lines[i].Name == name {
			lines[i].Bytes = bytes
		}
	}
	p.Scheduled.Ledger, p.Memory = lines, lines
	p.PeakBytes = doc.SumLedger(lines)
}

// Each case breaks one invariant of a valid plan. The message has its number,
// the op, the tier where there is one, and the numbers.
func TestPlanInvariants(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doc.Plan)
		want  []string
	}{
		{"pin", func(p *doc.Plan) {
			p.Pins = []doc.PlanPin{{Reason: "a head", MinBits: 5, Ops: []string{"block_0.mlp"}}}
		}, []string{"/op_bundles/2/tiers/0/level", `"block_0.mlp"`, "tier 0", "2 bits", "pinned at 5 bits", "a head"}},
		{"pin of a level", func(p *doc.Plan) {
			p.Pins = []doc.PlanPin{{Reason: "a head", Level: q4, Ops: []string{"block_0.attn", "block_1.expert_1"}}}
		}, []string{"/op_bundles/4/tiers/0/level", `"block_1.expert_1"`, q4}},
		{"1: pinned op", func(p *doc.Plan) {
			p.Pins = []doc.PlanPin{{Reason: "a head", MinBits: 5, Ops: []string{"block_9.mlp"}}}
		}, []string{"invariant 1", `"block_9.mlp"`}},
		{"1: required record", func(p *doc.Plan) { p.OpBundles[2].Tiers[1].Requires[1] = "block_0.mlp.residual_9" },
			[]string{"/op_bundles/2/tiers/1/requires/1: invariant 1:", `op "block_0.mlp" tier 1`, "block_0.mlp.residual_9", "not in the catalog"}},
		{"1: record of another op", func(p *doc.Plan) { p.OpBundles[2].Tiers[0].Requires[0] = "embedding.skeleton" },
			[]string{"invariant 1:", `op "block_0.mlp" tier 0`, `of op "embedding"`}},
		{"1: record stands on nothing", func(p *doc.Plan) {
			p.OpBundles[2].Tiers[1].Requires = []string{"block_0.mlp.residual_1"}
			p.OpBundles[2].Tiers[1].Level = r2
		}, []string{"invariant 1:", `op "block_0.mlp" tier 1`, "adds to"}},
		{"1: level of other records", func(p *doc.Plan) { p.OpBundles[2].Tiers[2].Level = q2 },
			[]string{"invariant 1:", `op "block_0.mlp" tier 2`, q2, q4}},
		{"1: encoding", func(p *doc.Plan) { p.Catalog[0].Encoding = "q8g64-bf16-lsq1" },
			[]string{"/tensor_catalog/0/encoding: invariant 1:", "q8g64-bf16-lsq1"}},
		{"1: op of a record", func(p *doc.Plan) { p.Catalog[6].Op = "block_7.attn" }, []string{"/tensor_catalog/6/op: invariant 1:", "block_7.attn"}},
		{"1: below", func(p *doc.Plan) { p.Catalog[3].Below = "block_0.attn.skeleton" }, []string{"invariant 1:", "block_0.attn.skeleton"}},
		{"1: resident record", func(p *doc.Plan) { p.Scheduled.Resident[0] = "embedding.level_7" }, []string{"/scheduled/resident/0: invariant 1:", "embedding.level_7"}},
		{"1: prefetched record", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].Prefetch[0].Record = "embedding.skeleton" },
			[]string{"invariant 1:", `op "block_0.attn" tier 0`, "embedding.skeleton"}},
		{"1: prefetch op", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].Prefetch[0].StartDuring = "block_9.attn" },
			[]string{"invariant 1:", `op "block_0.attn" tier 0`, "block_9.attn"}},
		{"1: evicted record", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].EvictAfter[0] = "embedding.skeleton" }, []string{"invariant 1:", `op "block_0.attn" tier 0`}},
		{"2: starts too late", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].Prefetch[0].StartDuring = "block_0.attn" },
			[]string{"/op_bundles/1/tiers/0/prefetch/0: invariant 2:", `op "block_0.attn" tier 0`, "place 1", "does not precede"}},
		{"2: due after the op", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].Prefetch[0].DeadlineBefore = "block_0.mlp" },
			[]string{"invariant 2:", `op "block_0.attn" tier 0`, "block_0.mlp"}},
		{"2: more than a token ahead", func(p *doc.Plan) { p.OpBundles[1].Tiers[0].Prefetch[0].WrapsToken = true },
			[]string{"invariant 2:", `op "block_0.attn" tier 0`, "more than a token"}},
		{"3: default path", func(p *doc.Plan) { p.Budget.MaxRAMBytes = 40000 }, []string{"invariant 3:", "scheduled", "45056", "40000"}},
		{"3: ring too small", func(p *doc.Plan) {
			p.Scheduled.RingBytes = 4096
			setLedger(p, doc.LedgerRing, 4096)
		}, []string{"/scheduled/ring_bytes: invariant 3:", `op "block_0.attn" tier 0`, "8192", "4096"}},
		{"3: expert without a slot", func(p *doc.Plan) { p.Scheduled.Slots = nil }, []string{"/scheduled/slots: invariant 3:", `op "block_1.expert_0" tier 0`, "4096"}},
		{"4: risk rises", func(p *doc.Plan) { p.OpBundles[2].Tiers[2].QualityRisk = 0.25 },
			[]string{"/op_bundles/2/tiers/2/estimated_quality_risk: invariant 4:", `op "block_0.mlp" tier 2`, "0.25", "0.2"}},
		{"5: delta falls", func(p *doc.Plan) { p.OpBundles[2].Tiers[1].DeltaBytes = 16385 },
			[]string{"/op_bundles/2/tiers/2/peak_ram_delta_bytes: invariant 5:", `op "block_0.mlp" tier 2`, "16384", "16385"}},
		{"5: delta less than the records", func(p *doc.Plan) { p.OpBundles[2].Tiers[1].DeltaBytes = 8191 },
			[]string{"invariant 5:", `op "block_0.mlp" tier 1`, "8191", "8192"}},
		{"6: pool", func(p *doc.Plan) {
			p.OpBundles[2].Tiers = p.OpBundles[2].Tiers[:2]
			p.Exact.Resident = append(p.Exact.Resident[:1], "block_0.mlp.skeleton", "block_0.mlp.residual_1")
			p.PoolBytes = 8191
			setLedger(p, doc.LedgerPool, 8191)
		}, []string{"/escalation_ram_pool_bytes: invariant 6:", `op "block_0.mlp"`, "8192", "8191"}},
		{"6: ceiling", func(p *doc.Plan) {
			p.PoolBytes = 16383
			setLedger(p, doc.LedgerPool, 16383)
		}, []string{"/op_bundles/2/tiers/2/peak_ram_delta_bytes: invariant 6:", `op "block_0.mlp" tier 2`, "16384", "16383"}},
		{"7: whole ledger", func(p *doc.Plan) { setLedger(p, doc.LedgerProcessBase, 1<<17) }, []string{"/scheduled/ledger: invariant 7:", "scheduled", "131072"}},
		{"7: exact mode", func(p *doc.Plan) { p.Exact.Ledger[3].Bytes = 1 << 17 }, []string{"/exact/ledger: invariant 7:", "exact", "131072"}},
		{"8: disk", func(p *doc.Plan) { p.Budget.MaxSSDCacheBytes = 50000 }, []string{"/tensor_catalog: invariant 8:", "53248", "50000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := validPlan()
			c.spoil(p)
			err := p.Validate()
			if err == nil {
				t.Fatal("valid")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}

// What is not an invariant but makes no sense either.
func TestPlanRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*doc.Plan){
		"NaN risk":               func(p *doc.Plan) { p.OpBundles[0].Tiers[0].QualityRisk = math.NaN() },
		"infinite KL":            func(p *doc.Plan) { p.Predicted.KL = math.Inf(1) },
		"negative pool":          func(p *doc.Plan) { p.PoolBytes = -1 },
		"pool beyond 2^53":       func(p *doc.Plan) { p.PoolBytes = 1<<53 + 1 },
		"no ops":                 func(p *doc.Plan) { p.OpBundles = nil },
		"four tiers":             func(p *doc.Plan) { p.OpBundles[2].Tiers = append(p.OpBundles[2].Tiers, doc.Tier{Index: 3}) },
		"no tiers":               func(p *doc.Plan) { p.OpBundles[0].Tiers = nil },
		"tier index":             func(p *doc.Plan) { p.OpBundles[2].Tiers[1].Index = 2 },
		"delta of the default":   func(p *doc.Plan) { p.OpBundles[0].Tiers[0].DeltaBytes = 1 },
		"no records":             func(p *doc.Plan) { p.OpBundles[0].Tiers[0].Requires = nil },
		"record twice":           func(p *doc.Plan) { p.Catalog[1].ID = p.Catalog[0].ID },
		"op twice":               func(p *doc.Plan) { p.OpBundles[1].Op = p.OpBundles[0].Op },
		"kind":                   func(p *doc.Plan) { p.OpBundles[0].Kind = "mystery" },
		"fallback":               func(p *doc.Plan) { p.OpBundles[0].Tiers[0].Fallback = "hope" },
		"huge records":           func(p *doc.Plan) { p.Catalog[0].RAMBytes = math.MaxInt64 },
		"huge slots":             func(p *doc.Plan) { p.Scheduled.Slots[0].Slots = math.MaxInt },
		"layer of slots twice":   func(p *doc.Plan) { p.Scheduled.Slots = append(p.Scheduled.Slots, p.Scheduled.Slots[0]) },
		"ledger does not add up": func(p *doc.Plan) { p.PeakBytes++ },
		"ledger line twice":      func(p *doc.Plan) { p.Exact.Ledger[3].Name = doc.LedgerSlots },
		"memory of another day":  func(p *doc.Plan) { p.Memory = p.Exact.Ledger },
		"budget":                 func(p *doc.Plan) { p.Budget.MaxRAMBytes = 0 },
		"context":                func(p *doc.Plan) { p.Budget.ContextTokens = 0 },
		"target":                 func(p *doc.Plan) { p.Budget.TargetTokensPerSec = math.NaN() },
		"encoding":               func(p *doc.Plan) { p.Encodings[0].Bits = 7 },
		"objective":              func(p *doc.Plan) { p.Objective = "luck" },
		"hash":                   func(p *doc.Plan) { p.TableSHA256 = "abc" },
		"slot lead":              func(p *doc.Plan) { p.SlotLead = 16 },
		"warn factor":            func(p *doc.Plan) { p.Fallback.LatencyWarnFactor = 0.5 },
	} {
		t.Run(name, func(t *testing.T) {
			p := validPlan()
			spoil(p)
			if p.Validate() == nil {
				t.Error("valid")
			}
		})
	}
}
