package plan

import (
	"errors"
	"fmt"

	"substrate/pkg/doc"
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
	e := &InfeasibleError{Budget: s.budget}
	switch cause {
	case errMemory, errTime, errQuality, errDisk:
		e.Axis = cause.Error()
	default:
		return cause
	}
	e.SmallestRAM = s.smallestRAM()
	return e
}

// smallestRAM bisects the budget by solving again; 0 if none works.
func (s *solver) smallestRAM() int64 {
	works := func(ram int64) bool {
		again := *s
		again.budget.MaxRAMBytes = ram
		problem := *s.problem
		problem.free = ram - s.fixed.Sum()
		again.problem = &problem
		_, err := again.decide()
		return err == nil
	}
	return smallest(s.fixed.Sum(), works)
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
