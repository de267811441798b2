package store_test

import (
	"context"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

const (
	moeModel   = "../../testdata/models/qwen3moe"
	denseModel = "../../testdata/models/llama-gqa"
)

func openModel(t testing.TB, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Encodings of the tests' plans.
var (
	q2 = coded(2, "lsq", false)
	q4 = coded(4, "lsq", false)
	r3 = coded(3, "lsq", true)
	m2 = coded(2, "minmax", false)
	m3 = coded(3, "minmax", true)
	bf = doc.Encoding{ID: "bf16", Bits: 16, Scale: "bf16", Fit: "none"}
)

func coded(bits int, fit string, residual bool) doc.Encoding {
	e := doc.Encoding{Bits: bits, Group: 32, Scale: "bf16", Fit: fit, FitVersion: 1, Residual: residual}
	e.ID = doc.EncodingID(&e)
	return e
}

// A ladder gives the encodings of an op's tiers: a single one is a record of
// its own, further ones add to the first.
type ladder [][]doc.Encoding

// makePlan makes a plan that holds everything resident, but for the records
// that streamed names.
func makePlan(t testing.TB, p *doc.Profile, ladderOf func(*doc.Op) ladder, streamed map[string]bool) *doc.Plan {
	t.Helper()
	plan := &doc.Plan{
		Format: doc.FormatPlan, ModelID: p.ModelID, HeaderSHA256: p.HeaderSHA256, Strategy: "test", Objective: doc.ObjectiveKL,
		Budget: doc.Budget{MaxRAMBytes: 1 << 40, ContextTokens: 128}, KVCacheType: "f32", PrefillChunk: 16, SlotPeriod: 16, SlotLead: 4,
		Fallback: doc.FallbackPolicy{LatencyWarnFactor: 1.5, LatencyCriticalFactor: 3, SSDCriticalFactor: 0.5},
	}
	known := map[string]bool{}
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Shares != "" || len(op.Tensors) == 0 {
			continue
		}
		bundle := doc.OpBundle{Op: op.ID, Kind: op.Kind}
		for n, encodings := range ladderOf(op) {
			tier := doc.Tier{Index: n, Fallback: doc.FallbackStall, QualityRisk: 1 / float64(1+n)}
			var ids []string
			below := ""
			for part, e := range encodings {
				if !known[e.ID] {
					known[e.ID] = true
					plan.Encodings = append(plan.Encodings, e)
				}
				id := op.ID + ".skeleton"
				switch {
				case part > 0:
					id = op.ID + ".residual_" + string(rune('0'+part))
				case n > 0 && len(encodings) == 1:
					id = op.ID + ".level_" + string(rune('0'+n))
				}
				l, err := footprint.Layout(op, &e)
				if err != nil {
					t.Fatal(err)
				}
				if !known[id] {
					known[id] = true
					plan.Catalog = append(plan.Catalog, doc.CatalogRecord{ID: id, Op: op.ID, Encoding: e.ID, Below: below, RAMBytes: l.Bytes, SSDBytes: l.Bytes})
				}
				below = id
				ids = append(ids, e.ID)
				tier.Requires = append(tier.Requires, id)
				if n > 0 && (part > 0 || len(encodings) == 1) {
					tier.DeltaBytes += l.Bytes
				}
			}
			tier.Level = doc.LevelID(ids)
			bundle.Tiers = append(bundle.Tiers, tier)
		}
		plan.OpBundles = append(plan.OpBundles, bundle)
	}
	var weights, ring int64
	for _, r := range plan.Catalog {
		if streamed[r.ID] {
			ring += r.RAMBytes
			continue
		}
		weights += r.RAMBytes
		plan.Scheduled.Resident = append(plan.Scheduled.Resident, r.ID)
	}
	plan.Scheduled.RingBytes = ring
	plan.Scheduled.Ledger = []doc.LedgerLine{{Name: doc.LedgerWeights, Bytes: weights}, {Name: doc.LedgerRing, Bytes: ring}}
	plan.Exact, plan.Memory, plan.PeakBytes = plan.Scheduled, plan.Scheduled.Ledger, weights+ring
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// mixed gives experts a stacked residual, attention a replacement, and all
// others one record.
func mixed(op *doc.Op) ladder {
	switch op.Kind {
	case doc.KindMoEExpert, doc.KindMLPDense:
		return ladder{{q2}, {q2, r3}}
	case doc.KindAttention:
		return ladder{{q2}, {q4}}
	case doc.KindEmbedding, doc.KindLMHead:
		return ladder{{q4}}
	}
	return ladder{{bf}}
}

// partOfMixed shares attention and embedding with mixed, and the experts'
// skeletons.
func partOfMixed(op *doc.Op) ladder {
	switch op.Kind {
	case doc.KindMoEExpert, doc.KindMLPDense:
		return mixed(op)[:1]
	case doc.KindMoERouter:
		return ladder{{q4}}
	}
	return mixed(op)
}

// quick has residuals too, but takes little time to fit.
func quick(op *doc.Op) ladder {
	if op.Kind == doc.KindMLPDense {
		return ladder{{m2}, {m2, m3}}
	}
	return ladder{{m2}}
}

// uniform gives every op one record.
func uniform(e doc.Encoding) func(*doc.Op) ladder {
	return func(*doc.Op) ladder { return ladder{{e}} }
}

// spec is a store of one plan of a model.
func spec(t testing.TB, m *model.Model, plans ...*doc.Plan) store.Spec {
	s := store.Spec{Profile: m.Profile(), Texts: []store.Text{{File: "tokenizer.json", Data: []byte("{}\n")}}}
	for i, p := range plans {
		s.Plans = append(s.Plans, store.NamedPlan{Name: []string{"default", "small", "other"}[i], Plan: p})
	}
	return s
}

func newBuild(t testing.TB, s store.Spec) *store.Build {
	t.Helper()
	b, err := store.NewBuild(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func options(m *model.Model) store.Options {
	return store.Options{Source: m, Weights: m.WeightsSHA256, Fingerprint: "test"}
}

func write(t testing.TB, b *store.Build, path string, opt store.Options) *doc.Packed {
	t.Helper()
	packed, err := b.Write(context.Background(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
