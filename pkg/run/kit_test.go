package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"substrate/internal/jsonio"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// Encodings of the tests' plans.
var (
	dense32 = encoding(32, 0, "", false)
	q2      = encoding(2, 32, "minmax", false)
	q4      = encoding(4, 32, "minmax", false)
	q8      = encoding(8, 32, "minmax", false)
	r3      = encoding(3, 32, "minmax", true)
	r4      = encoding(4, 32, "minmax", true)
)

func encoding(bits, group int, fit string, residual bool) doc.Encoding {
	e := doc.Encoding{Bits: bits, Group: group, Fit: fit, FitVersion: 1, Residual: residual}
	if bits < 32 {
		e.Scale = "bf16"
	} else {
		e.Fit, e.FitVersion = "none", 0
	}
	e.ID = doc.EncodingID(&e)
	return e
}

// ladder is the encodings of each tier of an op.
type ladder [][]doc.Encoding

// planSpec is a plan for tests.
type planSpec struct {
	ladder func(op *doc.Op) ladder
	// streamed says which records are not resident, in both modes.
	streamed func(op *doc.Op, record string) bool
	slots    int // of every MoE layer, if experts stream or upgrade
	upgrades bool
	pool     int64
	chunk    int
	context  int

	pace     time.Duration // that every op is expected to take; 0: nothing is expected
	rate     int64         // of the disk, bytes per second
	fallback string        // of every tier; "": stall
}

// source is the ladder of one tier at the checkpoint's own precision.
func source(*doc.Op) ladder { return ladder{{dense32}} }

// mixed has residuals on experts and MLPs, a replacing level on attention.
func mixed(op *doc.Op) ladder {
	switch op.Kind {
	case doc.KindMoEExpert, doc.KindMLPDense:
		return ladder{{q2}, {q2, r3}, {q2, r3, r4}}
	case doc.KindAttention:
		return ladder{{q4}, {q8}}
	}
	return ladder{{q8}}
}

// makePlan writes a plan down.
func makePlan(t testing.TB, p *doc.Profile, s planSpec) *doc.Plan {
	t.Helper()
	if s.chunk == 0 {
		s.chunk = 16
	}
	if s.context == 0 {
		s.context = 320
	}
	plan := &doc.Plan{
		Format: doc.FormatPlan, ModelID: p.ModelID, HeaderSHA256: p.HeaderSHA256, Strategy: "test", Objective: doc.ObjectiveKL,
		Budget: doc.Budget{MaxRAMBytes: 1 << 30, ContextTokens: s.context}, KVCacheType: "f32", PrefillChunk: s.chunk, SlotPeriod: 4, SlotLead: 2,
		Fallback:   doc.FallbackPolicy{LatencyWarnFactor: 1.5, LatencyCriticalFactor: 3, SSDCriticalFactor: 0.5},
		Escalation: doc.EscalationPolicy{Threshold: 0.15, PersistenceTokens: 3, MaxConcurrent: 2},
		PoolBytes:  s.pool,
	}
	if s.pool == 0 {
		plan.Escalation.MaxConcurrent = 0
	}
	known := map[string]bool{}
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Shares != "" || len(op.Tensors) == 0 {
			continue
		}
		plan.OpBundles = append(plan.OpBundles, makeBundle(t, plan, op, s.ladder(op), known))
	}
	plan.Budget.SSDBytesPerSec = s.rate
	for i := range plan.OpBundles {
		for j := range plan.OpBundles[i].Tiers {
			t := &plan.OpBundles[i].Tiers[j]
			t.Fallback, t.ComputeNs = cmp.Or(s.fallback, t.Fallback), int64(s.pace)
		}
	}
	for i := range plan.OpBundles { // only what fits the pool is in a plan
		b := &plan.OpBundles[i]
		for len(b.Tiers) > 2 && b.Tiers[len(b.Tiers)-1].DeltaBytes > s.pool {
			b.Tiers = b.Tiers[:len(b.Tiers)-1]
		}
	}
	residencyOf(p, plan, &plan.Scheduled, s, func(b *doc.OpBundle) *doc.Tier { return &b.Tiers[0] })
	residencyOf(p, plan, &plan.Exact, s, func(b *doc.OpBundle) *doc.Tier { return &b.Tiers[len(b.Tiers)-1] })
	plan.Scheduled.Ledger = append(plan.Scheduled.Ledger, doc.LedgerLine{Name: doc.LedgerPool, Bytes: s.pool})
	plan.Memory, plan.PeakBytes = plan.Scheduled.Ledger, doc.SumLedger(plan.Scheduled.Ledger)
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	return plan
}

func makeBundle(t testing.TB, plan *doc.Plan, op *doc.Op, l ladder, known map[string]bool) doc.OpBundle {
	bundle := doc.OpBundle{Op: op.ID, Kind: op.Kind}
	for n, encodings := range l {
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
				id = fmt.Sprintf("%s.residual_%d", op.ID, part)
			case n > 0 && len(encodings) == 1:
				id = fmt.Sprintf("%s.level_%d", op.ID, n)
			}
			layout, err := footprint.Layout(op, &e)
			if err != nil {
				t.Fatal(err)
			}
			if layout.Bytes == 0 {
				continue
			}
			if !known[id] {
				known[id] = true
				plan.Catalog = append(plan.Catalog, doc.CatalogRecord{ID: id, Op: op.ID, Encoding: e.ID, Below: below, RAMBytes: layout.Bytes, SSDBytes: layout.Bytes})
			}
			if n > 0 && !slices.Contains(bundle.Tiers[0].Requires, id) {
				tier.DeltaBytes += layout.Bytes
			}
			below = id
			ids = append(ids, e.ID)
			tier.Requires = append(tier.Requires, id)
		}
		tier.Level = doc.LevelID(ids)
		bundle.Tiers = append(bundle.Tiers, tier)
	}
	return bundle
}

// residencyOf makes the residency of one mode.
func residencyOf(p *doc.Profile, plan *doc.Plan, r *doc.Residency, s planSpec, tierOf func(*doc.OpBundle) *doc.Tier) {
	ops := map[string]*doc.Op{}
	for i := range p.Ops {
		ops[p.Ops[i].ID] = &p.Ops[i]
	}
	bytes := map[string]int64{}
	for _, c := range plan.Catalog {
		bytes[c.ID] = c.RAMBytes
	}
	var weights, slots int64
	var ring []int64
	slotBytes, streams := map[int]int64{}, map[int]bool{}
	for i := range plan.OpBundles {
		b := &plan.OpBundles[i]
		op := ops[b.Op]
		var streamed int64
		for _, id := range tierOf(b).Requires {
			if s.streamed != nil && s.streamed(op, id) {
				streamed += bytes[id]
				continue
			}
			r.Resident = append(r.Resident, id)
			weights += bytes[id]
		}
		switch {
		case op.Kind != doc.KindMoEExpert && streamed > 0:
			ring = append(ring, streamed)
		case streamed > 0:
			streams[op.Layer] = true
			slotBytes[op.Layer] = max(slotBytes[op.Layer], streamed)
		}
	}
	if r == &plan.Scheduled && s.upgrades {
		for i := range plan.OpBundles {
			b := &plan.OpBundles[i]
			if op := ops[b.Op]; op.Kind == doc.KindMoEExpert && !streams[op.Layer] {
				slotBytes[op.Layer] = max(slotBytes[op.Layer], b.Tiers[1].DeltaBytes)
			}
		}
	}
	for l := range p.Architecture.Layers {
		if n := slotBytes[l]; n > 0 {
			tier := 1
			if streams[l] {
				tier = 0
			}
			r.Slots = append(r.Slots, doc.SlotLayer{Layer: l, Tier: tier, Slots: s.slots, SlotBytes: n})
			slots += n * int64(s.slots)
		}
	}
	r.RingBytes = footprint.RingBytes(ring)
	r.Ledger = []doc.LedgerLine{{Name: doc.LedgerWeights, Bytes: weights}, {Name: doc.LedgerSlots, Bytes: slots}, {Name: doc.LedgerRing, Bytes: r.RingBytes}}
}

// golden is what transformers computes from a checkpoint.
type golden struct {
	Prompts []struct {
		Name   string  `json:"name"`
		IDs    []int32 `json:"ids"`
		Greedy []int32 `json:"greedy_ids"`
	} `json:"prompts"`
}

func readGolden(t testing.TB, name string) *golden {
	t.Helper()
	path := filepath.Join("../../testdata/models", name, "golden.json")
	b, err := os.ReadFile(path)
	g := new(golden)
	if err == nil {
		err = jsonio.UnmarshalLoose(path, b, g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var models = []string{"llama-gqa", "llama-rope-scaled", "qwen3moe", "qwen3moe-mixed"}

// pack packs a test model with a plan.
func pack(t testing.TB, name string, compress bool, s planSpec) *store.Store {
	t.Helper()
	m, err := model.Open(filepath.Join("../../testdata/models", name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	plan := makePlan(t, m.Profile(), s)
	build, err := store.NewBuild(store.Spec{Profile: m.Profile(), Plans: []store.NamedPlan{{Name: "default", Plan: plan}}, Compress: compress})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.sb")
	if _, err := build.Write(context.Background(), path, store.Options{Source: m, Weights: m.WeightsSHA256, Threads: 2}); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// open opens a run on the reference backend that holds what the plan says.
func open(t testing.TB, st *store.Store, o Options) *Run {
	t.Helper()
	o.asPlanned = true
	r, err := Open(t.Context(), st, "", ref.Open(2), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// generate returns the tokens of a generation, which must succeed.
func generate(t testing.TB, r *Run, prompt []int32, most int) ([]int32, Result) {
	t.Helper()
	var ids []int32
	res, err := r.Generate(t.Context(), prompt, most, func(id int32) error {
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, res
}

var _ io.Closer = (*Run)(nil)
