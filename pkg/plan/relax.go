package plan

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"substrate/pkg/doc"
)

// command is how to make a plan with a budget.
func command(b doc.Budget) string {
	return strings.Join(append([]string{"sb-plan"}, BudgetFlags(b)...), " ")
}

// relaxer looks for changes of a budget that make it feasible.
type relaxer struct {
	*solver
	report  *doc.Feasibility
	least   int64 // memory of any plan, in bytes; 0: none
	command func(doc.Budget) string
}

// single finds, flag by flag, the smallest change that makes the budget work
// with everything else as it is. The flags of failing axes come first.
func (s *relaxer) single(infeasible *InfeasibleError) []doc.Relax {
	var options []doc.Relax
	add := func(axis, flag, unit string, value, old float64, b doc.Budget) {
		again, err := s.with(b)
		if err != nil {
			return
		}
		if _, err := again.decide(); err != nil {
			return
		}
		options = append(options, doc.Relax{Axis: axis, Flag: flag, Value: value, Unit: unit, Cost: relaxCost(value, old), Command: s.command(b)})
	}
	b := s.budget
	if ram := infeasible.SmallestRAM; ram > 0 {
		b.MaxRAMBytes = ram
		add(doc.AxisMemory, flagRAM, unitBytes, float64(ram), float64(s.budget.MaxRAMBytes), b)
	}
	if old := s.budget.TargetTokensPerSec; old > 0 {
		b = s.budget
		b.TargetTokensPerSec = largest(old, func(v float64) bool {
			return s.worksWith(func(b *doc.Budget) { b.TargetTokensPerSec = v })
		})
		if b.TargetTokensPerSec > 0 {
			add(doc.AxisLatency, flagSpeed, unitSpeed, b.TargetTokensPerSec, old, b)
		}
	}
	if old := s.budget.QualityLossCap; old > 0 {
		b = s.budget
		if kl, ok := s.bestKL(b); ok {
			b.QualityLossCap = roundUp(kl)
			add(doc.AxisQuality, flagQuality, unitKL, b.QualityLossCap, old, b)
		}
	}
	if old := s.budget.ContextTokens; old > 1 {
		b = s.budget
		works := func(n int) bool {
			return s.worksWith(func(b *doc.Budget) { b.ContextTokens = n })
		}
		// The first length that does not work is one too many.
		b.ContextTokens = sort.Search(old-1, func(i int) bool { return !works(i + 1) })
		if b.ContextTokens > 0 {
			add(doc.AxisMemory, "--context", "tokens", float64(b.ContextTokens), float64(old), b)
		}
	}
	if old := s.budget.MaxSSDCacheBytes; old > 0 {
		b = s.budget
		b.MaxSSDCacheBytes = smallest(old, func(n int64) bool {
			return s.worksWith(func(b *doc.Budget) { b.MaxSSDCacheBytes = n })
		})
		if b.MaxSSDCacheBytes > old {
			add(doc.AxisDisk, "--max-disk", unitBytes, float64(b.MaxSSDCacheBytes), float64(old), b)
		}
	}
	if old := s.budget.SSDBytesPerSec; old > 0 {
		b = s.budget
		b.SSDBytesPerSec = smallest(old, func(n int64) bool {
			return s.worksWith(func(b *doc.Budget) { b.SSDBytesPerSec = n })
		})
		if b.SSDBytesPerSec > old {
			add(doc.AxisBandwidth, "--ssd-bw", "bytes_per_sec", float64(b.SSDBytesPerSec), float64(old), b)
		}
	}
	slices.SortStableFunc(options, func(a, b doc.Relax) int {
		return -cmp.Compare(rank(s.report, a.Axis), rank(s.report, b.Axis))
	})
	return options
}

const (
	flagRAM     = "--max-ram"
	flagSpeed   = "--tps"
	flagQuality = "--quality"

	unitBytes = "bytes"
	unitSpeed = "tokens_per_sec"
	unitKL    = "nats_per_token"
)

// relaxCost compares changes of different flags: twice the memory is as dear
// as half the speed or twice the KL.
func relaxCost(value, old float64) float64 { return math.Abs(math.Log(value / old)) }

// rank is 2 for the binding axis, 1 for one that fails too, else 0.
func rank(f *doc.Feasibility, axis string) int {
	switch {
	case axis == f.BindingAxis:
		return 2
	case fails(f, axis):
		return 1
	}
	return 0
}

// jointSteps is how many sizes of memory the joint search looks at first, and
// jointRounds how often it then halves the distance around the best of them.
const (
	jointSteps  = 6
	jointRounds = 3
)

// joint looks for the cheapest change of memory, speed and quality together:
// for sizes of memory between the smallest that fits at all and the one that
// fits with all else as it is, it takes the speed and the quality that can be
// had there. The cheapest single change is a candidate too. What it finds was
// solved, and its memory is the smallest with the rest as found.
func (s *relaxer) joint() *doc.JointRelax {
	var best *doc.JointRelax
	for _, o := range s.report.RelaxOptions {
		if best == nil || o.Cost < best.Cost {
			best = &doc.JointRelax{Changes: []doc.Change{{Axis: o.Axis, Flag: o.Flag, Value: o.Value, Unit: o.Unit}}, Cost: o.Cost, Command: o.Command}
		}
	}
	if s.budget.TargetTokensPerSec == 0 && s.budget.QualityLossCap == 0 {
		return best
	}
	low := float64(max(s.least, s.budget.MaxRAMBytes))
	if low == 0 {
		return best
	}
	high := 4 * low
	for _, o := range s.report.RelaxOptions {
		if o.Flag == flagRAM {
			high = o.Value
		}
	}
	var found *doc.Budget
	cost, at := math.Inf(1), low
	look := func(ram float64) {
		b, c, ok := s.cheapestAt(roundRAM(ram))
		if ok && c < cost {
			found, cost, at = &b, c, ram
		}
	}
	step := math.Pow(high/low, 1.0/(jointSteps-1))
	for i := range jointSteps {
		look(low * math.Pow(step, float64(i)))
	}
	for range jointRounds {
		step = math.Sqrt(step)
		center := at
		look(max(low, center/step))
		look(min(high, center*step))
	}
	if found == nil {
		return best
	}
	if ram := s.smallestWith(*found); ram > 0 && ram < found.MaxRAMBytes {
		found.MaxRAMBytes = ram
	}
	r := s.changes(*found)
	if best != nil && best.Cost <= r.Cost || len(r.Changes) == 0 {
		return best
	}
	again, err := s.with(*found)
	if err == nil {
		_, err = again.decide()
	}
	if err != nil {
		return best
	}
	return r
}

// roundRAM is the next whole block.
func roundRAM(ram float64) int64 { return (int64(ram) + ramStep - 1) / ramStep * ramStep }

// cheapestAt is the cheapest change of speed and quality at a size of memory.
func (s *relaxer) cheapestAt(ram int64) (best doc.Budget, cost float64, ok bool) {
	b := s.budget
	b.MaxRAMBytes = max(b.MaxRAMBytes, ram)
	at, err := s.with(b)
	if err != nil {
		return b, 0, false
	}
	cost = math.Inf(1)
	offer := func(b doc.Budget) {
		if c := s.changes(b).Cost; c < cost {
			best, cost = b, c
		}
	}
	// As fast as can be, but no faster than asked; quality as it comes.
	if t := b.TargetTokensPerSec; t > 0 {
		u := at.fastest()
		b.TargetTokensPerSec = min(t, roundDown(1e9/(u.timeNs()*speedBand)))
	}
	kl, ok := s.bestKL(b)
	if !ok {
		return b, 0, false
	}
	cap := b.QualityLossCap
	if cap > 0 {
		b.QualityLossCap = max(cap, roundUp(kl))
	}
	offer(b)
	if cap == 0 || kl <= cap || b.TargetTokensPerSec == 0 {
		return best, cost, true
	}
	// The quality as asked, at the speed that leaves.
	b.QualityLossCap, b.TargetTokensPerSec = cap, 0
	if at, err = s.with(b); err == nil && at.works() == nil {
		if r, err := at.decide(); err == nil {
			b.TargetTokensPerSec = min(s.budget.TargetTokensPerSec, roundDown(1e9/(r.use.timeNs()*speedBand)))
			offer(b)
		}
	}
	return best, cost, true
}

// changes lists what differs between the budget and another.
func (s *relaxer) changes(b doc.Budget) *doc.JointRelax {
	r := &doc.JointRelax{Command: s.command(b)}
	for _, c := range []struct {
		axis, flag, unit string
		value, old       float64
	}{
		{doc.AxisMemory, flagRAM, unitBytes, float64(b.MaxRAMBytes), float64(s.budget.MaxRAMBytes)},
		{doc.AxisLatency, flagSpeed, unitSpeed, b.TargetTokensPerSec, s.budget.TargetTokensPerSec},
		{doc.AxisQuality, flagQuality, unitKL, b.QualityLossCap, s.budget.QualityLossCap},
	} {
		if c.value != c.old {
			r.Changes = append(r.Changes, doc.Change{Axis: c.axis, Flag: c.flag, Value: c.value, Unit: c.unit})
			r.Cost += relaxCost(c.value, c.old)
		}
	}
	return r
}

// bestKL is the predicted KL of the best plan of a budget at its speed,
// whatever quality it asks for.
func (s *solver) bestKL(b doc.Budget) (kl float64, ok bool) {
	b.QualityLossCap = 0
	again, err := s.with(b)
	if err != nil {
		return 0, false
	}
	var r *result
	if s.opt.Objective == doc.ObjectiveKL && s.opt.Strategy == StrategyOptimal {
		r, err = again.leastAtAnySpeed()
	} else {
		r, err = again.decide()
	}
	if err != nil {
		return 0, false
	}
	return s.table.Link.KL(r.use.kl), true
}

// smallestWith is the smallest memory in which the rest of a budget works, but
// no less than the solver's own.
func (s *solver) smallestWith(b doc.Budget) int64 {
	works := func(ram int64) bool {
		b.MaxRAMBytes = ram
		again, err := s.with(b)
		return err == nil && again.works() == nil
	}
	low, high := s.budget.MaxRAMBytes, b.MaxRAMBytes
	for high-low > ramStep {
		if mid := (low + (high-low)/2) / ramStep * ramStep; mid > low && works(mid) {
			high = mid
		} else if mid <= low {
			break
		} else {
			low = mid
		}
	}
	return high
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

// roundDown and roundUp keep three digits, in numbers that print as such.
func roundDown(v float64) float64 { return roundTo(v, math.Floor) }

func roundUp(v float64) float64 {
	if v <= 0 {
		return math.SmallestNonzeroFloat64
	}
	return roundTo(v, math.Ceil)
}

func roundTo(v float64, round func(float64) float64) float64 {
	digits := 2 - int(math.Floor(math.Log10(v)))
	if digits > 0 {
		unit := math.Pow10(digits)
		return round(v*unit) / unit
	}
	unit := math.Pow10(-digits)
	return round(v/unit) * unit
}
