package plan

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"substrate/pkg/doc"
)

// Feasible answers whether a model runs within a budget, on four axes, and
// which smallest change of one flag would make it run. Every change was tried
// by solving again. The answer "infeasible" is a report, not an error.
func Feasible(t *doc.Table, m *doc.Machine, b doc.Budget, o Options) (*doc.Feasibility, error) {
	s, err := newSolver(t, m, b, o)
	if err != nil {
		return nil, err
	}
	f := &doc.Feasibility{
		Format:       doc.FormatFeasibility,
		Synthetic:    t.Synthetic || t.Profile.Synthetic,
		ModelID:      t.Profile.ModelID,
		Source:       klSource(s.table),
		Budget:       s.budget,
		RelaxOptions: []doc.Relax{},
		Annotations:  t.Notes,
	}
	plan, err := Solve(t, m, b, o)
	var infeasible *InfeasibleError
	switch {
	case err == nil:
		f.Status = doc.StatusFeasible
		f.Predicted = &plan.Predicted
		f.Command = s.command(s.budget)
	case errors.As(err, &infeasible):
		f.Status = doc.StatusInfeasible
	default:
		return nil, err
	}
	s.axes(f, infeasible)
	if f.Status == doc.StatusInfeasible {
		f.RelaxOptions = s.relaxations(f, infeasible)
		if len(f.RelaxOptions) > 0 {
			f.Command = f.RelaxOptions[0].Command
		}
	}
	return f, f.Validate()
}

// axes looks at each constraint by itself. What cannot be had within the
// memory is looked at in the smallest memory that fits, and says so.
func (s *solver) axes(f *doc.Feasibility, infeasible *InfeasibleError) {
	alone := s.budget
	alone.QualityLossCap, alone.TargetTokensPerSec, alone.MaxSSDCacheBytes = 0, 0, 0
	at, err := s.with(alone)
	if err != nil {
		return // the same numbers were valid before
	}
	least := at.smallestRAM()
	f.Axes = append(f.Axes, newAxis(doc.AxisMemory, "bytes", float64(least), float64(s.budget.MaxRAMBytes), "smallest --max-ram of any plan"))
	where := ""
	if least > alone.MaxRAMBytes {
		alone.MaxRAMBytes = least
		where = " in the smallest memory that fits"
		if at, err = s.with(alone); err != nil {
			return
		}
	}
	f.Axes = append(f.Axes, s.speedAxes(at, where)...)
	f.Axes = append(f.Axes, s.qualityAxis(at, where))
	for i := range f.Axes {
		if a := &f.Axes[i]; infeasible != nil && a.Axis == infeasible.Axis && a.OK {
			a.OK = false
			a.Reason += "; not met together with the others"
		}
	}
	f.BindingAxis = binding(f.Axes)
}

func newAxis(name, unit string, required, available float64, reason string) doc.Axis {
	return doc.Axis{Axis: name, Unit: unit, Required: required, Available: available, Slack: available - required, OK: required <= available, Reason: reason}
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
func (s *solver) fastest() (best usage) {
	for i, m := range s.problem.fewModes() {
		if u, ok := newSearch(s.problem, m).fastest(limits{ram: s.problem.free}); ok && (i == 0 || best.weights == 0 || u.timeNs() < best.timeNs()) {
			best = u
		}
	}
	return best
}

// qualityAxis compares the KL of the best plan with the cap, at the target of
// speed if it can be met.
func (s *solver) qualityAxis(at *solver, where string) doc.Axis {
	b := at.budget
	b.TargetTokensPerSec = s.budget.TargetTokensPerSec
	r, reason := (*result)(nil), "the best plan"+where
	if again, err := s.with(b); err == nil {
		r, _ = again.decide()
	}
	if r == nil {
		r, _ = at.decide()
		reason += " without a target of speed"
	}
	kl := 0.0
	if r != nil {
		kl = s.table.Link.KL(r.use.kl)
	}
	cap := s.budget.QualityLossCap
	if cap == 0 {
		return newAxis(doc.AxisQuality, "nats_per_token", kl, kl, reason+"; there is no --quality to meet")
	}
	return newAxis(doc.AxisQuality, "nats_per_token", kl, cap, reason)
}

// binding names the failing axis that lacks most, relative to what there is.
func binding(axes []doc.Axis) (name string) {
	most := math.Inf(-1)
	for _, a := range axes {
		if lacks := a.Required / a.Available; !a.OK && lacks > most {
			name, most = a.Axis, lacks
		}
	}
	return name
}

// relaxations finds, flag by flag, the smallest change that makes the budget
// work with everything else as it is. The flags of failing axes come first.
func (s *solver) relaxations(f *doc.Feasibility, infeasible *InfeasibleError) []doc.Relax {
	var options []doc.Relax
	add := func(axis, flag, unit string, value float64, b doc.Budget) {
		again, err := s.with(b)
		if err != nil {
			return
		}
		if _, err := again.decide(); err != nil {
			return
		}
		options = append(options, doc.Relax{Axis: axis, Flag: flag, Value: value, Unit: unit, Command: s.command(b)})
	}
	b := s.budget
	if ram := infeasible.SmallestRAM; ram > 0 {
		b.MaxRAMBytes = ram
		add(doc.AxisMemory, "--max-ram", "bytes", float64(ram), b)
	}
	if s.budget.TargetTokensPerSec > 0 {
		b = s.budget
		b.TargetTokensPerSec = largest(s.budget.TargetTokensPerSec, func(v float64) bool {
			return s.worksWith(func(b *doc.Budget) { b.TargetTokensPerSec = v })
		})
		if b.TargetTokensPerSec > 0 {
			add(doc.AxisLatency, "--tps", "tokens_per_sec", b.TargetTokensPerSec, b)
		}
	}
	if s.budget.QualityLossCap > 0 {
		b = s.budget
		b.QualityLossCap = 0
		if again, err := s.with(b); err == nil {
			if r, err := again.decide(); err == nil {
				b.QualityLossCap = roundUp(s.table.Link.KL(r.use.kl))
				add(doc.AxisQuality, "--quality", "nats_per_token", b.QualityLossCap, b)
			}
		}
	}
	if s.budget.ContextTokens > 1 {
		b = s.budget
		works := func(n int) bool {
			return s.worksWith(func(b *doc.Budget) { b.ContextTokens = n })
		}
		// The first length that does not work is one too many.
		b.ContextTokens = sort.Search(s.budget.ContextTokens-1, func(i int) bool { return !works(i + 1) })
		if b.ContextTokens > 0 {
			add(doc.AxisMemory, "--context", "tokens", float64(b.ContextTokens), b)
		}
	}
	if s.budget.MaxSSDCacheBytes > 0 {
		b = s.budget
		b.MaxSSDCacheBytes = smallest(b.MaxSSDCacheBytes, func(n int64) bool {
			return s.worksWith(func(b *doc.Budget) { b.MaxSSDCacheBytes = n })
		})
		if b.MaxSSDCacheBytes > s.budget.MaxSSDCacheBytes {
			add("disk", "--max-disk", "bytes", float64(b.MaxSSDCacheBytes), b)
		}
	}
	if s.budget.SSDBytesPerSec > 0 {
		b = s.budget
		b.SSDBytesPerSec = smallest(b.SSDBytesPerSec, func(n int64) bool {
			return s.worksWith(func(b *doc.Budget) { b.SSDBytesPerSec = n })
		})
		if b.SSDBytesPerSec > s.budget.SSDBytesPerSec {
			add(doc.AxisBandwidth, "--ssd-bw", "bytes_per_sec", float64(b.SSDBytesPerSec), b)
		}
	}
	slices.SortStableFunc(options, func(a, b doc.Relax) int {
		return -cmp.Compare(rank(f, a.Axis), rank(f, b.Axis))
	})
	return options
}

// rank is 2 for the binding axis, 1 for one that fails too, else 0.
func rank(f *doc.Feasibility, axis string) int {
	if axis == f.BindingAxis {
		return 2
	}
	if slices.ContainsFunc(f.Axes, func(a doc.Axis) bool { return a.Axis == axis && !a.OK }) {
		return 1
	}
	return 0
}

// worksWith reports whether there is a plan with one change of the budget.
func (s *solver) worksWith(change func(*doc.Budget)) bool {
	b := s.budget
	change(&b)
	again, err := s.with(b)
	return err == nil && again.works() == nil
}

// largest is the largest number below high, to three digits, that works; 0 if
// not even a millionth of high does.
func largest(high float64, works func(float64) bool) float64 {
	low := high * 1e-6
	if !works(low) {
		return 0
	}
	for high/low > 1.0005 {
		if mid := math.Sqrt(high * low); works(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	for _, v := range []float64{roundDown(low), low} {
		if works(v) {
			return v
		}
	}
	return 0
}

// roundDown and roundUp keep three digits.
func roundDown(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	return math.Floor(v/unit) * unit
}

func roundUp(v float64) float64 {
	if v <= 0 {
		return math.SmallestNonzeroFloat64
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	return math.Ceil(v/unit) * unit
}

// command writes a budget as the flags of sb-plan.
func (s *solver) command(b doc.Budget) string {
	words := []string{"sb-plan", "--max-ram", FlagSize(b.MaxRAMBytes)}
	add := func(given bool, flag, value string) {
		if given {
			words = append(words, flag, value)
		}
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	add(b.QualityLossCap > 0, "--quality", number(b.QualityLossCap))
	add(b.TargetTokensPerSec > 0, "--tps", number(b.TargetTokensPerSec))
	add(true, "--context", strconv.Itoa(b.ContextTokens))
	add(b.MaxSSDCacheBytes > 0, "--max-disk", FlagSize(b.MaxSSDCacheBytes))
	add(b.SSDBytesPerSec > 0, "--ssd-bw", FlagSize(b.SSDBytesPerSec))
	add(s.given.Objective != "", "--objective", s.given.Objective)
	add(s.given.Strategy != "", "--strategy", s.given.Strategy)
	add(s.given.MaxConcurrent > 0, "--max-concurrent", strconv.Itoa(s.given.MaxConcurrent))
	return strings.Join(words, " ")
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
