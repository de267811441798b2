package plan_test

import (
	"errors"
	"slices"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

// A plan that is cut fits the new budget, keeps its rules, loses what its
// certificate says, and stays within the gap that it prints: solving for the
// new budget from the table finds nothing below its bound.
func TestCutStaysWithinGap(t *testing.T) {
	for _, in := range []*doc.Table{tinyMoE(t), tinyDense(t)} {
		least := smallestRAM(t, in)
		for _, c := range []struct {
			strategy string
			from     int64
			tps      float64
		}{{plan.StrategyStatic, 3 << 20, 1}, {plan.StrategyStatic, 6 << 20, 1}, {plan.StrategyOptimal, 2 << 20, 300}, {plan.StrategyOptimal, 4 << 20, 600}} {
			o := plan.Options{Strategy: c.strategy, Work: 1_000_000}
			from := c.from
			b := doc.Budget{MaxRAMBytes: least + from, TargetTokensPerSec: c.tps}
			p, err := plan.Solve(in, nil, b, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, more := range []int64{-2 << 20, -1 << 20, -256 << 10, 0, 1 << 20, 3 << 20} {
				b.MaxRAMBytes = least + from + more
				d, err := plan.Cut(p, b.MaxRAMBytes)
				if few := (*plan.CutError)(nil); errors.As(err, &few) && more < 0 {
					if few.Least <= b.MaxRAMBytes {
						t.Errorf("%v", err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%+d bytes: %v", more, err)
					continue
				}
				if d.PeakBytes > b.MaxRAMBytes {
					t.Errorf("%+d bytes: %d of %d", more, d.PeakBytes, b.MaxRAMBytes)
				}
				if more >= 0 && d.Certificate.Value > p.Certificate.Value {
					t.Errorf("%+d bytes: loses %d picoNats after %d", more, d.Certificate.Value, p.Certificate.Value)
				}
				if _, err := plan.Check(d, in, nil); err != nil {
					t.Errorf("%+d bytes: %v", more, err)
				}
				best, err := plan.Solve(in, nil, b, o)
				if err != nil {
					continue
				}
				if best.Certificate.Value < d.Certificate.LowerBound-int64(1e12*in.Floor) {
					t.Errorf("%+d bytes: a plan of %d picoNats, below the bound of %d", more, best.Certificate.Value, d.Certificate.LowerBound)
				}
				t.Logf("%s %s %+d KiB: cut %.4g, solved %.4g, gap %.2g", in.Profile.ModelID, c.strategy, more>>10, d.Predicted.KL, best.Predicted.KL, d.Certificate.RelativeGap)
			}
		}
	}
}

// The increments of every op rise in bytes, fall in KL, and hold its default.
func TestIncrementsHoldDefaults(t *testing.T) {
	in := tinyMoE(t)
	p, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: smallestRAM(t, in) + 6<<20}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Increments) == 0 {
		t.Fatal("none")
	}
	for _, s := range p.Increments {
		if !slices.Contains(s.Levels, p.Bundle(s.Op).Tiers[0].Level) {
			t.Errorf("%s is at %s, its increments are %q", s.Op, p.Bundle(s.Op).Tiers[0].Level, s.Levels)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	in := tinyMoE(t)
	b := doc.Budget{MaxRAMBytes: smallestRAM(t, in) + 6<<20}
	p, err := plan.Solve(in, nil, b, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var few *plan.CutError
	if _, err := plan.Cut(p, 1<<20); !errors.As(err, &few) || few.Least <= 1<<20 {
		t.Errorf("cut to nothing: %v", err)
	}
	if p, err = plan.Solve(in, nil, b, plan.Options{Strategy: plan.StrategyUniform}); err != nil {
		t.Fatal(err)
	}
	var option *plan.OptionError
	if _, err := plan.Cut(p, 64<<20); !errors.As(err, &option) {
		t.Errorf("cut of a plan without increments: %v", err)
	}
}
