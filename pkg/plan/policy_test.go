package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// tierBits is the precision of a tier: the bits of its records added up.
func tierBits(p *doc.Plan, t *doc.Tier) (sum int) {
	for _, id := range t.Requires {
		r := slices.IndexFunc(p.Catalog, func(r doc.CatalogRecord) bool { return r.ID == id })
		e := slices.IndexFunc(p.Encodings, func(e doc.Encoding) bool { return e.ID == p.Catalog[r].Encoding })
		sum += p.Encodings[e].LeastBits()
	}
	return sum
}

// pinOf is the plan's pin of an op with a reason that has some words.
func pinOf(p *doc.Plan, op, reason string) *doc.PlanPin {
	for i := range p.Pins {
		if strings.Contains(p.Pins[i].Reason, reason) && slices.Contains(p.Pins[i].Ops, op) {
			return &p.Pins[i]
		}
	}
	return nil
}

// Every kind of rule holds in the plan, which says why.
func TestPolicyHolds(t *testing.T) {
	in := tinyMoE(t)
	in.Items = slices.Clone(in.Items)
	item := func(op string) *doc.Item {
		i := slices.IndexFunc(in.Items, func(it doc.Item) bool { return it.Op == op })
		in.Items[i].Levels = slices.Clone(in.Items[i].Levels)
		return &in.Items[i]
	}
	item("block_1.expert_3").HitShare = 0.001
	for i, l := range item("block_2.expert_5").Levels {
		in.Items[slices.IndexFunc(in.Items, func(it doc.Item) bool { return it.Op == "block_2.expert_5" })].Levels[i].KL = 1000 * l.KL
	}
	policy := &doc.Policy{
		Format: doc.FormatPolicy,
		Pins: []doc.Pin{
			{Kind: doc.KindLMHead, MinBits: 6, Reason: "the head"},
			{Kind: doc.KindAttention, Layers: []int{0, 3}, MinBits: 8, Reason: "the ends"},
			{Op: "block_1.attn", Level: "q4g64-bf16-lsq1", Reason: "just so"},
			{Kind: doc.KindEmbedding, MinBits: 16, UnmeasuredOnly: true, Reason: "not measured"},
		},
		SuperExperts: &doc.SuperExperts{LossFactor: 30, MinBits: 8},
		RareExperts:  &doc.RareExperts{HitShareBelow: 0.01, MinBits: 6},
	}
	p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 24 << 20}, plan.Options{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		op, reason string
		bits       int
	}{
		{"lm_head", "the head", 6},
		{"block_0.attn", "the ends", 8},
		{"block_3.attn", "the ends", 8},
		{"block_2.expert_5", "super expert", 8},
		{"block_1.expert_3", "rare expert", 6},
	} {
		if pin := pinOf(p, want.op, want.reason); pin == nil || pin.MinBits != want.bits {
			t.Errorf("op %s has no pin %q at %d bits", want.op, want.reason, want.bits)
		}
		for i := range p.Bundle(want.op).Tiers {
			if bits := tierBits(p, &p.Bundle(want.op).Tiers[i]); bits < want.bits {
				t.Errorf("op %s tier %d has %d bits, pinned at %d", want.op, i, bits, want.bits)
			}
		}
	}
	if tiers := p.Bundle("block_1.attn").Tiers; len(tiers) != 1 || tiers[0].Level != "q4g64-bf16-lsq1" {
		t.Errorf("block_1.attn: %d tiers, the first of level %s", len(tiers), tiers[0].Level)
	}
	if pinOf(p, "embedding", "not measured") != nil {
		t.Error("the embedding was measured and is pinned")
	}
	if pinOf(p, "block_2.expert_4", "") != nil {
		t.Error("an expert like the others is pinned")
	}
	for _, op := range []string{"final_norm", "block_2.router"} {
		if pin := pinOf(p, op, "norms and routers"); pin == nil || pin.MinBits != 16 {
			t.Errorf("op %s is not said to have 16 bits", op)
		}
	}
}

// Whatever a policy asks, the plan keeps it and costs no less, or the error
// is a "no" or names the rule.
func TestPolicyProperties(t *testing.T) {
	in := tinyMoE(t)
	kinds := []doc.Kind{doc.KindEmbedding, doc.KindAttention, doc.KindMoEExpert, doc.KindMoERouter, doc.KindLMHead}
	free, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 20 << 20}, plan.Options{Strategy: plan.StrategyStatic})
	if err != nil {
		t.Fatal(err)
	}
	bound := float64(free.Certificate.LowerBound) * 1e-12
	rapid.Check(t, func(t *rapid.T) {
		policy := &doc.Policy{Format: doc.FormatPolicy}
		for range rapid.IntRange(0, 3).Draw(t, "pins") {
			policy.Pins = append(policy.Pins, doc.Pin{
				Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), MinBits: rapid.IntRange(1, 16).Draw(t, "bits"), Reason: "drawn",
			})
		}
		if err := policy.Validate(); err != nil {
			t.Fatal(err)
		}
		p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 20 << 20}, plan.Options{Strategy: plan.StrategyStatic, Policy: policy})
		var no *plan.InfeasibleError
		var bad *plan.PolicyError
		switch {
		case errors.As(err, &no) || errors.As(err, &bad):
			return
		case err != nil:
			t.Fatal(err)
		}
		// A plan that has no room for the pool spends its bytes on weights.
		if p.PoolBytes >= free.PoolBytes && p.Predicted.KL < bound*(1-1e-9) {
			t.Fatalf("KL %v with a policy, at least %v without", p.Predicted.KL, bound)
		}
		for _, pin := range policy.Pins {
			for i := range p.OpBundles {
				b := &p.OpBundles[i]
				if b.Kind == pin.Kind && b.Kind != doc.KindMoERouter && tierBits(p, &b.Tiers[0]) < pin.MinBits {
					t.Fatalf("op %s has %d bits, pinned at %d", b.Op, tierBits(p, &b.Tiers[0]), pin.MinBits)
				}
			}
		}
	})
}

// A policy that a table cannot follow is refused with the rule and the op.
func TestPolicyRefused(t *testing.T) {
	in := tinyMoE(t)
	in.Encodings = append(in.Encodings, doc.Encoding{ID: "f32", Bits: 32, Fit: "none"})
	in.Levels = append(in.Levels, doc.Level{ID: "f32", Encodings: []string{"f32"}})
	for place, pin := range map[string]doc.Pin{
		"/pins/0/op: op \"block_9.attn\"":         {Op: "block_9.attn", MinBits: 4, Reason: "r"},
		"/pins/0/level: level \"q7\"":             {Op: "lm_head", Level: "q7", Reason: "r"},
		"/pins/0: op \"lm_head\" has nothing of ": {Op: "lm_head", Level: "f32", Reason: "r"},
	} {
		_, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 64 << 20}, plan.Options{Policy: &doc.Policy{Format: doc.FormatPolicy, Pins: []doc.Pin{pin}}})
		var bad *plan.PolicyError
		if !errors.As(err, &bad) || bad.ExitCode() != 3 || !strings.Contains(err.Error(), place) {
			t.Errorf("error %v, want %s", err, place)
		}
	}
}

// A table in which ops lack is filled with priors on the scale of the others,
// and the plan says for how many.
func TestPartialTable(t *testing.T) {
	in := tinyDense(t)
	b := doc.Budget{MaxRAMBytes: 24 << 20}
	whole, err := plan.Solve(in, nil, b, plan.Options{Strategy: plan.StrategyStatic})
	if err != nil {
		t.Fatal(err)
	}
	part := *in
	part.Items = slices.DeleteFunc(slices.Clone(in.Items), func(it doc.Item) bool { return it.Op == "block_2.mlp" || it.Op == "embedding" })
	p, err := plan.Solve(&part, nil, b, plan.Options{Strategy: plan.StrategyStatic})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.Predicted.KLSource, "priors for 2 of 14 ops") {
		t.Errorf("source %q", p.Predicted.KLSource)
	}
	if r := p.Predicted.KL / whole.Predicted.KL; r < 0.2 || r > 5 {
		t.Errorf("KL %v with priors, %v measured", p.Predicted.KL, whole.Predicted.KL)
	}
	if pinOf(p, "embedding", "nobody measured") == nil || pinOf(whole, "embedding", "nobody measured") != nil {
		t.Error("the default policy is not applied to what was not measured alone")
	}
}

// The losses of a profile alone are priors, and the head has its floor.
func TestPriorTable(t *testing.T) {
	profile, err := synth.Profile(synth.Shape{Layers: 4, Hidden: 256, Heads: 4, Vocab: 1000, Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	in, err := plan.PriorTable(profile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 20 << 20}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Predicted.KLSource != "prior, additive" {
		t.Errorf("source %q", p.Predicted.KLSource)
	}
	if bits := tierBits(p, &p.Bundle("lm_head").Tiers[0]); bits < 6 {
		t.Errorf("a head of %d bits", bits)
	}
	if p.Uniform == nil {
		t.Error("no single encoding, where pinned ops have other levels")
	}
}

// FuzzPolicy reads policies: none panics or makes a plan that breaks an
// invariant, whatever it asks.
func FuzzPolicy(f *testing.F) {
	for _, text := range []string{
		`{"format": "sb.policy/1", "pins": []}`,
		`{"format": "sb.policy/1", "pins": [{"kind": "lm_head", "min_bits": 6, "reason": "r"}, {"op": "block_1.attn", "level": "q4g64-bf16-lsq1", "reason": "r"}]}`,
		`{"format": "sb.policy/1", "pins": [{"kind": "attention", "layers": [0, 3], "min_bits": 16, "unmeasured_only": true, "reason": "r"}], "max_classes_per_layer": 1}`,
		`{"format": "sb.policy/1", "pins": [], "super_experts": {"loss_factor": 1, "min_bits": 8}, "rare_experts": {"hit_share_below": 1, "min_bits": 16}}`,
	} {
		f.Add([]byte(text))
	}
	in := table(f, synth.Shape{Layers: 2, Hidden: 128, Heads: 2, Vocab: 500, Context: 64, Experts: 4, TopK: 2, ExpertSize: 64}, synth.Losses{})
	f.Fuzz(func(t *testing.T, text []byte) {
		policy, err := doc.Read[doc.Policy]("policy", text)
		if err != nil {
			return
		}
		p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 17 << 20}, plan.Options{Policy: policy, Work: 10_000})
		if err == nil {
			err = p.Validate()
		}
		var coded interface{ ExitCode() int }
		if err != nil && !errors.As(err, &coded) {
			t.Fatal(err)
		}
	})
}
