package plan_test

import (
	"fmt"
	"log"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// A made-up mixture of experts of the size of the original's example, planned
// for 36 GB: the default path, what is left for escalations, and the ladder
// of one op.
func Example() {
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
		Objective: doc.ObjectiveCap, Threshold: 0.15, MaxConcurrent: 6, PersistenceTokens: 32,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ops: %d\n", len(p.OpBundles))
	fmt.Printf("default path peak RAM: %.0f GB\n", float64(p.PeakBytes-p.PoolBytes)/1e9)
	fmt.Printf("escalation pool: %.0f GB\n", float64(p.PoolBytes)/1e9)
	for _, tier := range p.Bundle("block_5.attn").Tiers {
		fmt.Printf("tier %d: %s, +%.0f MB\n", tier.Index, tier.Level, float64(tier.DeltaBytes)/1e6)
	}
	// Output:
	// ops: 1785
	// default path peak RAM: 7 GB
	// escalation pool: 29 GB
	// tier 0: q6g64-bf16-lsq1, +0 MB
	// tier 1: q8g64-bf16-lsq1, +18 MB
	// tier 2: bf16, +34 MB
}

// A budget that is too small is refused with the one that is not.
func ExampleSolve_infeasible() {
	profile, err := synth.Profile(synth.Shape{Layers: 4, Hidden: 256, Heads: 4, Vocab: 1000, Context: 256})
	if err != nil {
		log.Fatal(err)
	}
	table, err := synth.Table(profile, synth.Losses{})
	if err != nil {
		log.Fatal(err)
	}
	budget := doc.Budget{MaxRAMBytes: 1 << 20}
	_, err = plan.Solve(table, nil, budget, plan.Options{})
	infeasible, ok := err.(*plan.InfeasibleError)
	if !ok {
		log.Fatal(err)
	}
	budget.MaxRAMBytes = infeasible.SmallestRAM
	_, err = plan.Solve(table, nil, budget, plan.Options{})
	fmt.Println(infeasible.Axis, err)
	// Output:
	// memory <nil>
}
