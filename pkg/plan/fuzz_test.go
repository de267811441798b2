package plan_test

import (
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// Whatever a plan says, reading, checking and cutting it does not panic, and
// what is cut holds the rules.
func FuzzPlan(f *testing.F) {
	in := table(f, synth.Shape{Layers: 1, Hidden: 64, Heads: 1, Vocab: 64, Context: 16, Experts: 3, TopK: 1, ExpertSize: 64}, synth.Losses{})
	for _, ram := range []int64{smallestRAM(f, in), smallestRAM(f, in) + 64<<10, 64 << 20} {
		p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: ram}, plan.Options{Work: 1})
		if err != nil {
			f.Fatal(err)
		}
		text, err := doc.Write(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, ram-32<<10)
	}
	f.Fuzz(func(t *testing.T, text []byte, ram int64) {
		p, err := doc.Read[doc.Plan]("plan", text)
		if err != nil {
			return
		}
		plan.CheckAlone(p)
		if p.Budget.ContextTokens <= 16 {
			plan.Check(p, in, nil)
		}
		d, err := plan.Cut(p, ram)
		if err != nil {
			return
		}
		if err := d.Validate(); err != nil {
			t.Fatalf("cut to %d bytes: %v", ram, err)
		}
	})
}
