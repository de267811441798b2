package plan_test

import (
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

func BenchmarkSolve(b *testing.B) {
	t := table(b, synth.Shape{Experts: 64, TopK: 8}, synth.Losses{})
	for b.Loop() {
		if _, err := plan.Solve(t, nil, doc.Budget{MaxRAMBytes: 8 << 30}, plan.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
