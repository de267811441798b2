package plan_test

import (
	"fmt"
	"syscall"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// BenchmarkSolve times the solver alone on one core, and prints the gap of
// the certificate: on a model of 61 layers of 256 experts, as large as there
// are, from caps at which most experts stream to ones at which none does, and
// on 28 items of 12 levels, which are to be proven optimal.
func BenchmarkSolve(b *testing.B) {
	large := table(b, synth.Shape{Layers: 61, Experts: 256, Shared: 1, TopK: 8}, synth.Losses{})
	for _, cap := range []int64{24, 36, 60, 100, 200, 300} {
		b.Run(fmt.Sprintf("61x256/%dG", cap), func(b *testing.B) { solve(b, large, doc.Budget{MaxRAMBytes: cap << 30}) })
	}
	small := table(b, synth.Shape{Experts: 64, TopK: 8}, synth.Losses{})
	for _, cap := range []int64{3, 8, 36} {
		b.Run(fmt.Sprintf("27x64/%dG", cap), func(b *testing.B) { solve(b, small, doc.Budget{MaxRAMBytes: cap << 30}) })
	}
	dense := table(b, synth.Shape{Layers: 13, Hidden: 1024, Heads: 16}, synth.Losses{})
	for _, cap := range []int64{60, 75, 90, 130, 170, 250} {
		b.Run(fmt.Sprintf("28x12/%dM", cap), func(b *testing.B) {
			solve(b, dense, doc.Budget{MaxRAMBytes: cap << 20, ContextTokens: 64})
		})
	}
}

func solve(b *testing.B, t *doc.Table, budget doc.Budget) {
	var gap, kl float64
	cpu := processorTime()
	for b.Loop() {
		p, err := plan.Solve(t, nil, budget, plan.Options{})
		if err != nil {
			b.Fatal(err)
		}
		gap, kl = p.Certificate.RelativeGap, p.Predicted.KL
	}
	b.ReportMetric(float64(processorTime()-cpu)/1e6/float64(b.N), "cpu-ms/op")
	b.ReportMetric(100*gap, "%gap")
	b.ReportMetric(1e3*kl, "mnat")
}

// processorTime is what the process took, in ns: a busy machine does not
// change it much.
func processorTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
