package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// The certificate of every plan holds when it is checked without the solver,
// in all ways of streaming, with and without limits of time and disk.
func TestCertificatesHold(t *testing.T) {
	for _, in := range []*doc.Table{tinyMoE(t), tinyDense(t)} {
		least := smallestRAM(t, in)
		for _, b := range []doc.Budget{
			{MaxRAMBytes: least + 256<<10},
			{MaxRAMBytes: least + 1<<20, TargetTokensPerSec: 5},
			{MaxRAMBytes: least + 2<<20, MaxSSDCacheBytes: 5 << 20},
			{MaxRAMBytes: least + 4<<20},
			{MaxRAMBytes: least + 64<<20},
		} {
			for _, strategy := range []string{plan.StrategyOptimal, plan.StrategyStatic} {
				p, err := plan.Solve(in, nil, b, plan.Options{Strategy: strategy, Work: 1_000_000})
				if infeasible := (*plan.InfeasibleError)(nil); errors.As(err, &infeasible) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := plan.Check(p, in, nil)
				if err != nil {
					t.Errorf("%s %+v: %v", strategy, b, err)
					continue
				}
				if got.LowerBound < p.Certificate.LowerBound-1-p.Certificate.Value/1e5 && !p.Certificate.BySearch {
					t.Errorf("%s %+v: the multipliers prove %d, claimed are %d", strategy, b, got.LowerBound, p.Certificate.LowerBound)
				}
			}
		}
	}
}

// A certificate that claims more than its multipliers prove is refused, as is
// one for another plan, table or budget.
func TestCheckRefuses(t *testing.T) {
	in := tinyMoE(t)
	b := doc.Budget{MaxRAMBytes: smallestRAM(t, in) + 1<<20}
	other := table(t, synth.Shape{Layers: 4, Hidden: 256, Heads: 4, Vocab: 1000, Context: 256, Experts: 8, TopK: 2, ExpertSize: 128}, synth.Losses{Seed: 7})
	good, err := plan.Solve(in, nil, b, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := doc.Write(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(p *doc.Plan) *doc.Table{
		"bound": func(p *doc.Plan) *doc.Table {
			p.Certificate.Modes[1].Bounds[0].LowerBound += p.Certificate.Value / 20
			return in
		},
		"gap":           func(p *doc.Plan) *doc.Table { p.Certificate.RelativeGap /= 2; return in },
		"value":         func(p *doc.Plan) *doc.Table { p.Certificate.Value--; p.Certificate.Value /= 2; return in },
		"prices":        func(p *doc.Plan) *doc.Table { p.Certificate.Modes[1].Bounds[0].RAM *= 2; return in },
		"large prices":  func(p *doc.Plan) *doc.Table { p.Certificate.Modes[1].Bounds[0].RAM = doc.MaxInteger; return in },
		"less memory":   func(p *doc.Plan) *doc.Table { p.Certificate.RAMBytes -= 1 << 20; return in },
		"a mode":        func(p *doc.Plan) *doc.Table { p.Certificate.Modes = p.Certificate.Modes[:2]; return in },
		"another table": func(p *doc.Plan) *doc.Table { return other },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := doc.Read[doc.Plan]("plan", text)
			if err != nil {
				t.Fatal(err)
			}
			c, err := plan.Check(p, spoil(p), nil)
			if refused := (*plan.CheckError)(nil); !errors.As(err, &refused) {
				t.Errorf("got %+v and %v", c, err)
			}
		})
	}
}

func ExampleCheck() {
	profile, err := synth.Profile(synth.Shape{Layers: 4, Hidden: 256, Heads: 4, Vocab: 1000, Context: 256, Experts: 8, TopK: 2, ExpertSize: 128})
	if err != nil {
		panic(err)
	}
	table, err := synth.Table(profile, synth.Losses{})
	if err != nil {
		panic(err)
	}
	p, err := plan.Solve(table, nil, doc.Budget{MaxRAMBytes: 22 << 20}, plan.Options{})
	if err != nil {
		panic(err)
	}
	checked, err := plan.Check(p, table, nil)
	fmt.Println(err, checked.LowerBound <= checked.Value)
	// Output: <nil> true
}
