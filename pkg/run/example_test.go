package run_test

import (
	"fmt"
	"log"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/run"
	"substrate/pkg/synth"
)

// compile makes a plan for a mixture of experts out of nothing: a profile, a
// table of made-up losses, a budget, a policy.
func compile() *doc.Plan {
	profile, err := synth.Profile(synth.Shape{ModelID: "qwen-moe-30b", Layers: 27, Experts: 64, TopK: 8})
	if err != nil {
		log.Fatal(err)
	}
	table, err := synth.Table(profile, synth.Losses{SensitiveLayers: []int{0, 1, 25, 26}})
	if err != nil {
		log.Fatal(err)
	}
	budget := doc.Budget{
		MaxRAMBytes:        36e9,
		MaxSSDCacheBytes:   400e9,
		SSDBytesPerSec:     5e9,
		QualityLossCap:     0.05,
		TargetTokensPerSec: 4,
	}
	p, err := plan.Solve(table, nil, budget, plan.Options{
		Objective:         doc.ObjectiveCap,
		Threshold:         0.15,
		MaxConcurrent:     6,
		PersistenceTokens: 32,
	})
	if err != nil {
		log.Fatal(err)
	}
	return p
}

// A plan holds for every op a ladder of tiers, and a pool that the largest
// escalations fit together.
func Example_compile() {
	p := compile()
	fmt.Println("ops:", len(p.OpBundles))
	fmt.Println("fits:", p.PeakBytes <= p.Budget.MaxRAMBytes)
	fmt.Println("escalations at once:", p.Escalation.MaxConcurrent)

	i := slices.IndexFunc(p.OpBundles, func(b doc.OpBundle) bool { return b.Op == "block_5.attn" })
	tiers := p.OpBundles[i].Tiers
	for t := 1; t < len(tiers); t++ {
		fmt.Printf("tier %d of block_5.attn: less risk %v, more memory %v\n", tiers[t].Index,
			tiers[t].QualityRisk < tiers[t-1].QualityRisk, tiers[t].DeltaBytes > tiers[t-1].DeltaBytes)
	}
	// Output:
	// ops: 1785
	// fits: true
	// escalations at once: 6
	// tier 1 of block_5.attn: less risk true, more memory true
	// tier 2 of block_5.attn: less risk true, more memory true
}

// A verifier sees disagreement at the third token; the op goes up one tier
// within that token, and draws from the pool.
func ExampleTierController() {
	p := compile()
	controller := run.NewTierController(p)
	verifier := run.NewScriptedVerifier(map[string][]float64{"block_5.attn": {0, 0, 0.5, 0.5, 0.5, 0}})
	for token := range 6 {
		for op := range p.OpBundles {
			controller.Observe(op, verifier.Disagreement(p.OpBundles[op].Op, nil))
		}
		controller.EndToken()
		active := controller.Active("block_5.attn")
		fmt.Printf("token %d: block_5.attn at tier %d, all that the pool holds: %v\n", token, active.Index, controller.PoolUsed() == active.DeltaBytes)
	}
	// Output:
	// token 0: block_5.attn at tier 0, all that the pool holds: true
	// token 1: block_5.attn at tier 0, all that the pool holds: true
	// token 2: block_5.attn at tier 1, all that the pool holds: true
	// token 3: block_5.attn at tier 2, all that the pool holds: true
	// token 4: block_5.attn at tier 2, all that the pool holds: true
	// token 5: block_5.attn at tier 2, all that the pool holds: true
}
