package plan_test

import (
	"errors"
	"slices"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

// apply changes a budget as a relaxation says.
func apply(t *testing.T, b doc.Budget, c doc.Change) doc.Budget {
	switch c.Flag {
	case "--max-ram":
		b.MaxRAMBytes = int64(c.Value)
	case "--tps":
		b.TargetTokensPerSec = c.Value
	case "--quality":
		b.QualityLossCap = c.Value
	case "--context":
		b.ContextTokens = int(c.Value)
	case "--max-disk":
		b.MaxSSDCacheBytes = int64(c.Value)
	case "--ssd-bw":
		b.SSDBytesPerSec = int64(c.Value)
	default:
		t.Fatalf("flag %s is not known", c.Flag)
	}
	return b
}

// Every relaxation works when it is applied, the joint one is the cheapest,
// and the report fits what Solve says.
func TestRelaxationsWork(t *testing.T) {
	moe, dense := tinyMoE(t), tinyDense(t)
	for _, c := range []struct {
		name string
		in   *doc.Table
		b    doc.Budget
	}{
		{"memory", moe, doc.Budget{MaxRAMBytes: 12 << 20}},
		{"memory and speed", dense, doc.Budget{MaxRAMBytes: 12 << 20, TargetTokensPerSec: 1e5}},
		{"quality", moe, doc.Budget{MaxRAMBytes: 18 << 20, QualityLossCap: 1e-5}},
		{"speed", dense, doc.Budget{MaxRAMBytes: 18 << 20, TargetTokensPerSec: 3000, SSDBytesPerSec: 1 << 28}},
		{"all", moe, doc.Budget{MaxRAMBytes: 14 << 20, TargetTokensPerSec: 1e5, QualityLossCap: 1e-5}},
		{"disk", moe, doc.Budget{MaxRAMBytes: 20 << 20, MaxSSDCacheBytes: 1 << 20}},
		{"nothing", dense, doc.Budget{MaxRAMBytes: 40 << 20}},
	} {
		t.Run(c.name, func(t *testing.T) { relaxationsWork(t, c.in, c.b) })
	}
}

func relaxationsWork(t *testing.T, in *doc.Table, b doc.Budget) {
	o := plan.Options{Work: 50_000}
	f, err := plan.Feasible(plan.Question{Table: in, Input: doc.InputTable, Budget: b, Options: o})
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Solve(in, nil, b, o)
	if feasible := err == nil; feasible != (f.Status == doc.StatusFeasible) {
		t.Fatalf("status %s, Solve says %v", f.Status, err)
	}
	if err == nil {
		if slices.ContainsFunc(f.Axes, func(a doc.Axis) bool { return !a.OK }) {
			t.Fatalf("feasible, but %+v", f.Axes)
		}
		return
	}
	var no *plan.InfeasibleError
	if !errors.As(err, &no) {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(f.Axes, func(a doc.Axis) bool { return a.Axis == no.Axis && !a.OK }) {
		t.Fatalf("infeasible on %s, but %+v", no.Axis, f.Axes)
	}
	for _, r := range f.RelaxOptions {
		if _, err := plan.Solve(in, nil, apply(t, b, doc.Change{Flag: r.Flag, Value: r.Value}), o); err != nil {
			t.Fatalf("%s %v does not help: %v", r.Flag, r.Value, err)
		}
		if f.Joint == nil || f.Joint.Cost > r.Cost {
			t.Fatalf("%s %v costs %v, the joint relaxation %+v", r.Flag, r.Value, r.Cost, f.Joint)
		}
	}
	if j := f.Joint; j != nil {
		changed := b
		for _, c := range j.Changes {
			changed = apply(t, changed, c)
		}
		if _, err := plan.Solve(in, nil, changed, o); err != nil {
			t.Fatalf("%+v do not help: %v", j.Changes, err)
		}
	}
}

// Where memory, speed and quality all fail, all three axes say so, and the
// cheapest way out changes several flags.
func TestJointRelaxation(t *testing.T) {
	in := tinyMoE(t)
	least := smallestRAM(t, in)
	b := doc.Budget{MaxRAMBytes: least - 1<<20, TargetTokensPerSec: 3000, QualityLossCap: 1e-3, ContextTokens: 256}
	f, err := plan.Feasible(plan.Question{Table: in, Input: doc.InputTable, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	for _, axis := range []string{doc.AxisMemory, doc.AxisLatency, doc.AxisQuality} {
		i := slices.IndexFunc(f.Axes, func(a doc.Axis) bool { return a.Axis == axis })
		if a := f.Axes[i]; a.OK || a.Slack >= 0 || a.Slack != a.Available-a.Required {
			t.Errorf("axis %+v does not fail", a)
		}
	}
	if f.Joint == nil || f.Verdict != doc.VerdictNotHere {
		t.Fatalf("verdict %s, joint relaxation %+v", f.Verdict, f.Joint)
	}
}

// 2 GB for the original's example, in which nothing streams, is infeasible on
// memory, and what would do does.
func TestTwoGigabytes(t *testing.T) {
	in := originalTable(t)
	b := doc.Budget{MaxRAMBytes: 2e9, QualityLossCap: 0.05, TargetTokensPerSec: 4, ContextTokens: 4096}
	o := plan.Options{Objective: doc.ObjectiveCap, MaxConcurrent: 6}
	f, err := plan.Feasible(plan.Question{Table: in, Input: doc.InputTable, Budget: b, Options: o})
	if err != nil {
		t.Fatal(err)
	}
	if f.Status != doc.StatusInfeasible || f.BindingAxis != doc.AxisMemory || len(f.RelaxOptions) == 0 {
		t.Fatalf("%s on %q, %d relaxations", f.Status, f.BindingAxis, len(f.RelaxOptions))
	}
	for _, r := range f.RelaxOptions {
		if _, err := plan.Solve(in, nil, apply(t, b, doc.Change{Flag: r.Flag, Value: r.Value}), o); err != nil {
			t.Errorf("%s %v: %v", r.Flag, r.Value, err)
		}
	}
}

// originalTable is a model of the size of the original's example.
func originalTable(t testing.TB) *doc.Table {
	return table(t, synth.Shape{Layers: 27, Experts: 64, TopK: 8}, synth.Losses{SensitiveLayers: []int{0, 1, 25, 26}})
}

// Each style is what it says, none is better than the plan of all styles, and
// where nothing fits without streaming, streaming does.
func TestStyles(t *testing.T) {
	in := tinyMoE(t)
	least := smallestRAM(t, in)
	for name, c := range map[string]struct {
		ram    int64
		static bool
	}{"small": {least + 200<<10, false}, "large": {least + 6<<20, true}} {
		t.Run(name, func(t *testing.T) {
			f, err := plan.Feasible(plan.Question{Table: in, Input: doc.InputTable, Budget: doc.Budget{MaxRAMBytes: c.ram, TargetTokensPerSec: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Styles) != 3 || f.Styles[0].Style != doc.StyleStatic || f.Styles[1].Style != doc.StyleSkeletons || f.Styles[2].Style != doc.StyleStreamed {
				t.Fatalf("styles %+v", f.Styles)
			}
			if f.Styles[0].OK != c.static || !f.Styles[2].OK {
				t.Errorf("styles %+v", f.Styles)
			}
			for _, s := range f.Styles {
				switch {
				case !s.OK:
					if s.Reason == "" {
						t.Errorf("%s: no reason", s.Style)
					}
				case s.KL < f.Predicted.KL*(1-1e-2)-in.Floor:
					t.Errorf("%s: KL %v, the plan has %v", s.Style, s.KL, f.Predicted.KL)
				case s.Style == doc.StyleStatic && s.ReadBytesPerToken != 0:
					t.Errorf("a static mix reads %d bytes", s.ReadBytesPerToken)
				}
			}
		})
	}
}
