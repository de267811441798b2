package plan

import (
	"errors"
	"fmt"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// What no plan could hold.
var (
	errMemory  = errors.New(doc.AxisMemory)
	errTime    = errors.New(doc.AxisLatency)
	errQuality = errors.New(doc.AxisQuality)
	errDisk    = errors.New(doc.AxisDisk)
)

// InfeasibleError says that no plan fits the budget, and what would.
type InfeasibleError struct {
	Axis string // doc.AxisMemory, doc.AxisLatency, doc.AxisQuality or doc.AxisDisk
	// SmallestRAM is the smallest max_ram_bytes that works with the rest of
	// the budget as it is, in bytes; 0 if no memory helps.
	SmallestRAM int64
	Budget      doc.Budget
	// Fixed is what a run takes before any record, by purpose.
	Fixed []doc.LedgerLine
}

// LargestFixed is the purpose that takes most before any record.
func (e *InfeasibleError) LargestFixed() (largest doc.LedgerLine) {
	for _, l := range e.Fixed {
		if l.Bytes > largest.Bytes {
			largest = l
		}
	}
	return largest
}

func (e *InfeasibleError) Error() string {
	what := map[string]string{
		doc.AxisMemory:  fmt.Sprintf("the model does not fit %d bytes of RAM", e.Budget.MaxRAMBytes),
		doc.AxisLatency: fmt.Sprintf("%g tokens per second are out of reach within %d bytes of RAM", e.Budget.TargetTokensPerSec, e.Budget.MaxRAMBytes),
		doc.AxisQuality: fmt.Sprintf("a quality loss of at most %g nats per token is out of reach within %d bytes of RAM", e.Budget.QualityLossCap, e.Budget.MaxRAMBytes),
		doc.AxisDisk:    fmt.Sprintf("the records do not fit %d bytes of disk", e.Budget.MaxSSDCacheBytes),
	}[e.Axis]
	if e.SmallestRAM > 0 {
		return fmt.Sprintf("infeasible on %s: %s: needs at least %d bytes of RAM", e.Axis, what, e.SmallestRAM)
	}
	return fmt.Sprintf("infeasible on %s: %s, and more RAM does not help", e.Axis, what)
}

// ExitCode is that of a "no".
func (e *InfeasibleError) ExitCode() int { return 1 }

// OptionError says what is wrong with a policy or a budget.
type OptionError struct {
	Option string
	Reason string
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Reason }

// ExitCode is that of a usage error.
func (e *OptionError) ExitCode() int { return 2 }

// ramStep is what smallest budgets are exact to: records are whole blocks.
const ramStep = 4096

// maxRAMBytes is where the search for a smallest budget ends: 1 PiB.
const maxRAMBytes = 1 << 50

// infeasible finds the smallest memory that would do.
func (s *solver) infeasible(cause error) error {
	e := &InfeasibleError{Budget: s.budget, Fixed: footprint.Ledger(s.fixed, footprint.Holdings{})}
	switch cause {
	case errMemory, errTime, errQuality, errDisk:
		e.Axis = cause.Error()
	default:
		return cause
	}
	if e.SmallestRAM = s.smallestRAM(); e.SmallestRAM <= s.budget.MaxRAMBytes {
		e.SmallestRAM = 0 // a control that is faster with less: it spends all it has
	}
	return e
}

// with is the same solver with another budget. What only depends on the table
// is not built again where it stays the same.
func (s *solver) with(b doc.Budget) (*solver, error) {
	if b.ContextTokens != s.budget.ContextTokens || b.SSDBytesPerSec != s.budget.SSDBytesPerSec {
		return newSolver(s.table, s.machine, b, s.given)
	}
	if err := b.Validate(); err != nil {
		return nil, &OptionError{"budget", err.Error()}
	}
	again, problem := *s, *s.problem
	problem.free = b.MaxRAMBytes - s.fixed.Sum()
	problem.disk = b.MaxSSDCacheBytes
	problem.opt = &again.opt
	again.budget, again.problem = b, &problem
	return &again, nil
}

// works reports whether there is a plan, as decide does, but without looking
// for a good one where that need not be known.
func (s *solver) works() error {
	p := s.problem
	if p.free <= 0 {
		return errMemory
	}
	optimal := s.opt.Strategy == StrategyOptimal || s.opt.Strategy == StrategyStatic
	if !optimal || s.opt.Objective != doc.ObjectiveKL || p.disk != 0 {
		_, err := s.decide()
		return err
	}
	cause := errMemory
	for _, m := range append([]mode{{}}, p.modes()...) {
		search := newSearch(p, m)
		if s.budget.TargetTokensPerSec == 0 && search.fits(p.free) {
			cause = nil
			break
		}
		u, ok := search.fastest(limits{ram: p.free})
		if ok && s.fastEnough(&u) {
			cause = nil
			break
		}
		if ok {
			cause = errTime
		}
	}
	if cause != nil || s.budget.QualityLossCap == 0 {
		return cause
	}
	r, err := s.leastAtAnySpeed()
	if err != nil {
		return err
	}
	return s.checkQuality(r)
}

// leastAtAnySpeed is the plan of least KL at the speed that was asked for, or,
// if none was, at any: what is wanted of speed then gives way.
func (s *solver) leastAtAnySpeed() (*result, error) {
	r, err := s.leastWithin(s.askedTime(), nil)
	if err == nil {
		return r, nil
	}
	// Where hardly anything fits, only the fastest may be found.
	again := *s
	again.budget.QualityLossCap = 0
	return again.leastKL()
}

// askedTime is the longest that a token may take if somebody asked for a
// speed, in ns; 0 if nobody did: what is wanted of speed then gives way.
func (s *solver) askedTime() float64 {
	if s.budget.TargetTokensPerSec == 0 {
		return 0
	}
	return s.timeLimit(nil)
}

// fastEnough reports whether a usage holds the target of speed, if there is one.
func (s *solver) fastEnough(u *usage) bool {
	t := s.budget.TargetTokensPerSec
	return t == 0 || u.timeNs()*speedBand <= 1e9/t
}

// smallestRAM bisects the budget by solving again; 0 if none works. What
// holds a plan at all is found first: it takes little.
func (s *solver) smallestRAM() int64 {
	b := s.budget
	works := func(ram int64) bool {
		b.MaxRAMBytes = ram
		again, err := s.with(b)
		return err == nil && again.works() == nil
	}
	b.QualityLossCap, b.TargetTokensPerSec, b.MaxSSDCacheBytes = 0, 0, 0
	least := smallest(s.fixed.Sum(), works)
	b = s.budget
	if least == 0 || works(least) {
		return least
	}
	return smallest(least, works)
}

// smallest is the smallest multiple of ramStep above low that works, 0 if
// none below maxRAMBytes does.
func smallest(low int64, works func(int64) bool) int64 {
	low = max(0, low) / ramStep * ramStep
	high := low + ramStep
	for !works(high) {
		if high >= maxRAMBytes {
			return 0
		}
		low, high = high, min(2*high, maxRAMBytes)
	}
	for high-low > ramStep {
		mid := (low + (high-low)/2) / ramStep * ramStep
		if works(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}
