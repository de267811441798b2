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
	errDisk    = errors.New("disk")
)

// InfeasibleError says that no plan fits the budget, and what would.
type InfeasibleError struct {
	Axis string // doc.AxisMemory, doc.AxisLatency, doc.AxisQuality or "disk"
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
		"disk":          fmt.Sprintf("the records do not fit %d bytes of disk", e.Budget.MaxSSDCacheBytes),
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
	e.SmallestRAM = s.smallestRAM()
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
	quick := (s.opt.Strategy == StrategyOptimal || s.opt.Strategy == StrategyStatic) && s.opt.Objective == doc.ObjectiveKL && s.budget.QualityLossCap == 0 && p.disk == 0
	if !quick {
		_, err := s.decide()
		return err
	}
	if p.free <= 0 {
		return errMemory
	}
	cause := errMemory
	for _, m := range append([]mode{{}}, p.modes()...) {
		u, ok := newSearch(p, m).fastest(limits{ram: p.free})
		if ok && s.fastEnough(&u) {
			return nil
		}
		if ok {
			cause = errTime
		}
	}
	return cause
}

// fastEnough reports whether a usage holds the target of speed, if there is one.
func (s *solver) fastEnough(u *usage) bool {
	t := s.budget.TargetTokensPerSec
	return t == 0 || u.timeNs()*speedBand <= 1e9/t
}

// smallestRAM bisects the budget by solving again; 0 if none works.
func (s *solver) smallestRAM() int64 {
	return smallest(s.fixed.Sum(), func(ram int64) bool {
		b := s.budget
		b.MaxRAMBytes = ram
		again, err := s.with(b)
		return err == nil && again.works() == nil
	})
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
