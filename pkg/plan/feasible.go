package plan

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"substrate/pkg/doc"
)

// A Question is what Feasible answers: whether a model runs within a budget.
type Question struct {
	Table   *doc.Table
	Input   string       // a doc.Input…: what the table was made of
	Machine *doc.Machine // nil: not measured
	Budget  doc.Budget
	Options Options
	// Command writes how to plan with a budget; nil: the flags of sb-plan.
	Command func(doc.Budget) string
}

// Feasible answers on four axes whether a model runs within a budget, and
// which smallest changes of its flags would make it run. Every change was
// tried by solving again. The answer "infeasible" is a report, not an error.
func Feasible(q Question) (*doc.Feasibility, error) {
	s, err := newSolver(q.Table, q.Machine, q.Budget, q.Options)
	if err != nil {
		return nil, err
	}
	if q.Command == nil {
		q.Command = func(b doc.Budget) string { return command(b) }
	}
	f := &doc.Feasibility{
		Format:       doc.FormatFeasibility,
		Synthetic:    s.table.Synthetic || s.table.Profile.Synthetic,
		ModelID:      s.table.Profile.ModelID,
		Input:        q.Input,
		Source:       klSource(s.table),
		SpeedSource:  s.problem.speeds.source,
		Budget:       s.budget,
		RelaxOptions: []doc.Relax{},
		Styles:       []doc.Style{},
		Annotations:  s.table.Notes,
	}
	plan, err := Solve(q.Table, q.Machine, q.Budget, q.Options)
	var infeasible *InfeasibleError
	switch {
	case err == nil:
		f.Status = doc.StatusFeasible
		f.Verdict = verdict(plan.Predicted.TokensPerSecLow)
		f.Predicted = &plan.Predicted
		f.Command = q.Command(s.budget)
	case errors.As(err, &infeasible):
		f.Status = doc.StatusInfeasible
	default:
		return nil, err
	}
	f.Styles = s.styles()
	least := s.axes(f, infeasible)
	if infeasible != nil {
		r := relaxer{solver: s, report: f, least: least, command: q.Command}
		f.RelaxOptions = r.single(infeasible)
		f.Joint = r.joint()
		f.Verdict = doc.VerdictImpossible
		if f.Joint != nil {
			f.Verdict = doc.VerdictNotHere
			f.Command = f.Joint.Command
		}
	}
	return f, f.Validate()
}

// verdict says how well a speed does for reading along, in words that other
// tools use with the same numbers.
func verdict(tokensPerSec float64) string {
	switch {
	case tokensPerSec >= 15:
		return doc.VerdictFast
	case tokensPerSec >= 8:
		return doc.VerdictGood
	case tokensPerSec >= 3:
		return doc.VerdictUsable
	}
	return doc.VerdictSlow
}

// axes looks at each constraint by itself, memory together with the others
// where memory alone would do. What cannot be had within the memory is looked
// at in the smallest memory that fits, and says so. It returns the smallest
// memory of any plan.
func (s *solver) axes(f *doc.Feasibility, infeasible *InfeasibleError) (least int64) {
	alone := s.budget
	alone.QualityLossCap, alone.TargetTokensPerSec, alone.MaxSSDCacheBytes = 0, 0, 0
	at, err := s.with(alone)
	if err != nil {
		return 0 // the same numbers were valid before
	}
	least = at.smallestRAM()
	required, what := least, "smallest --max-ram of any plan"
	if infeasible != nil && infeasible.SmallestRAM > least {
		required, what = infeasible.SmallestRAM, "smallest --max-ram with the rest as it is"
	}
	f.Axes = append(f.Axes, newAxis(doc.AxisMemory, "bytes", float64(required), float64(s.budget.MaxRAMBytes), what))
	where := ""
	if least > alone.MaxRAMBytes {
		alone.MaxRAMBytes = least
		where = " in the smallest memory that fits"
		if at, err = s.with(alone); err != nil {
			return least
		}
	}
	f.Axes = append(f.Axes, s.speedAxes(at, where)...)
	f.Axes = append(f.Axes, s.qualityAxis(at, where))
	if s.budget.MaxSSDCacheBytes > 0 {
		f.Axes = append(f.Axes, newAxis(doc.AxisDisk, "bytes", float64(s.problem.leastDisk()), float64(s.budget.MaxSSDCacheBytes), "smallest store of any plan"))
	}
	for i := range f.Axes {
		if a := &f.Axes[i]; infeasible != nil && a.Axis == infeasible.Axis && a.OK {
			a.OK = false
			a.Reason += "; not met together with the others"
		}
	}
	f.BindingAxis = binding(f.Axes)
	return least
}

func newAxis(name, unit string, required, available float64, reason string) doc.Axis {
	return doc.Axis{Axis: name, Unit: unit, Required: required, Available: available, Slack: available - required, OK: required <= available, Reason: reason}
}

// leastDisk is what the smallest records of all items take.
func (p *problem) leastDisk() (least int64) {
	for i := range p.items {
		smallest := int64(math.MaxInt64)
		for j := range p.items[i].levels {
			smallest = min(smallest, p.items[i].levels[j].bytes)
		}
		least += smallest
	}
	return least
}

// speedAxes compares the fastest plan with the target.
func (s *solver) speedAxes(at *solver, where string) []doc.Axis {
	u := at.fastest()
	target := s.budget.TargetTokensPerSec
	rate := s.problem.speeds.bandwidth(1 << 20)
	ns := u.timeNs() * speedBand
	if target == 0 {
		return []doc.Axis{
			newAxis(doc.AxisBandwidth, "bytes_per_sec", min(rate, u.readBytes*1e9/ns), rate, "reads of the fastest plan"+where+" at its speed"),
			newAxis(doc.AxisLatency, "ns_per_token", ns, ns, "the fastest plan"+where+", low end of its band; there is no --tps to meet"),
		}
	}
	return []doc.Axis{
		newAxis(doc.AxisBandwidth, "bytes_per_sec", u.readBytes*target, rate, "reads of the fastest plan"+where+" at --tps"),
		newAxis(doc.AxisLatency, "ns_per_token", ns, 1e9/target, "the fastest plan"+where+", low end of its band"),
	}
}

// fastest is the usage of the fastest plan of any mode.
func (s *solver) fastest() usage {
	u, ok := s.fastestOf(s.problem.fewModes())
	if !ok {
		u, _ = s.fastestOf(append([]mode{{}}, s.problem.modes()...))
	}
	return u
}

func (s *solver) fastestOf(modes []mode) (best usage, ok bool) {
	for _, m := range modes {
		if u, fits := newSearch(s.problem, m).fastest(limits{ram: s.problem.free}); fits && (!ok || u.timeNs() < best.timeNs()) {
			best, ok = u, true
		}
	}
	return best, ok
}

// qualityAxis compares the KL of the best plan with the cap, at the target of
// speed if it can be met.
func (s *solver) qualityAxis(at *solver, where string) doc.Axis {
	reason := "the best plan" + where
	b := at.budget
	b.TargetTokensPerSec = s.budget.TargetTokensPerSec
	kl, ok := s.bestKL(b)
	if !ok {
		kl, _ = s.bestKL(at.budget)
		reason += " without a target of speed"
	}
	cap := s.budget.QualityLossCap
	if cap == 0 {
		return newAxis(doc.AxisQuality, "nats_per_token", kl, kl, reason+"; there is no --quality to meet")
	}
	return newAxis(doc.AxisQuality, "nats_per_token", kl, cap, reason)
}

// binding names the failing axis that lacks most, relative to what there is:
// memory before the others, which are looked at where something fits.
func binding(axes []doc.Axis) (name string) {
	most := math.Inf(-1)
	for _, a := range axes {
		if a.Axis == doc.AxisMemory && !a.OK {
			return a.Axis
		}
		if lacks := a.Required / a.Available; !a.OK && lacks > most {
			name, most = a.Axis, lacks
		}
	}
	return name
}

// fails reports whether a report says that an axis fails.
func fails(f *doc.Feasibility, axis string) bool {
	return slices.ContainsFunc(f.Axes, func(a doc.Axis) bool { return a.Axis == axis && !a.OK })
}

// BudgetFlags writes a budget as the flags of sb-plan and sb-feasible.
func BudgetFlags(b doc.Budget) []string {
	words := []string{"--max-ram", FlagSize(b.MaxRAMBytes)}
	add := func(given bool, flag, value string) {
		if given {
			words = append(words, flag, value)
		}
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	add(b.QualityLossCap > 0, "--quality", number(b.QualityLossCap))
	add(b.TargetTokensPerSec > 0, "--tps", number(b.TargetTokensPerSec))
	add(b.ContextTokens > 0, "--context", strconv.Itoa(b.ContextTokens))
	add(b.MaxSSDCacheBytes > 0, "--max-disk", FlagSize(b.MaxSSDCacheBytes))
	add(b.SSDBytesPerSec > 0, "--ssd-bw", FlagSize(b.SSDBytesPerSec))
	return words
}

// FlagSize writes bytes as a flag takes them, exactly: 36G, 41204K.
func FlagSize(n int64) string {
	for _, u := range []struct {
		unit   string
		factor int64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10)
}
