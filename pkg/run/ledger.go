package run

import (
	"fmt"
	"strings"

	"substrate/internal/mem"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// A RefusedError says that a run does not fit its cap or its environment. It
// comes before any work.
type RefusedError struct {
	CapBytes int64
	// Reason is what the cap does not fit: the ledger, or the environment.
	Reason string
	// Ledger lists what the smallest run of this kind needs.
	Ledger []doc.LedgerLine
	// Smallest is the smallest cap that works, in bytes; 0 if another cap is
	// no remedy.
	Smallest int64
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason)
	for i, l := range e.Ledger {
		b.WriteString([]string{": ", " + "}[min(i, 1)])
		fmt.Fprintf(&b, "%s %d", l.Name, l.Bytes)
	}
	return b.String()
}

// Hint names the flag.
func (e *RefusedError) Hint() string {
	if e.Smallest == 0 {
		return ""
	}
	return fmt.Sprintf("the smallest budget that works is --max-ram %d", e.Smallest)
}

// admit decides where records live under the cap, or refuses. Nothing of size
// has been allocated yet: resident is what the process takes so far.
func admit(p *program, plan *doc.Plan, fixed footprint.Fixed, o *Options, resident int64) (*residency, []doc.LedgerLine, error) {
	var pool int64
	if o.Verifier != nil && o.Mode == Scheduled {
		pool = plan.PoolBytes
	}
	rest := fixed.Sum() + pool
	r, smallest := p.fit(o.Mode, plan, o.CapBytes-rest)
	if r == nil {
		// The ledger of the smallest run shows why.
		least, _ := p.fit(o.Mode, plan, smallest)
		return nil, nil, &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the cap is %d bytes (%s), the smallest run takes %d", o.CapBytes, o.CapSource, smallest+rest),
			Ledger:   ledger(least, fixed, pool),
			Smallest: smallest + rest,
		}
	}
	lines := ledger(r, fixed, pool)
	return r, lines, allows(o.Environment, o, doc.SumLedger(lines)-resident, smallest+rest)
}

func ledger(r *residency, fixed footprint.Fixed, pool int64) []doc.LedgerLine {
	return footprint.Ledger(fixed, footprint.Holdings{Weights: r.weights, Slots: r.slots, Ring: r.ring, Pool: pool})
}

// allows refuses if the environment would stop the run before its cap does:
// then the cap promises what nobody can keep. more is what the run will
// allocate.
func allows(e *mem.Environment, o *Options, more, smallest int64) error {
	if e == nil {
		return nil
	}
	if limit := e.Cgroup.Limit; limit < o.CapBytes {
		refusal := &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the cap is %d bytes (%s), but cgroup %s limits this process to %d", o.CapBytes, o.CapSource, e.Cgroup.Group, limit),
		}
		if smallest <= limit {
			refusal.Smallest = smallest
		}
		return refusal
	}
	if room, by := e.Room(); room < more {
		return &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the run will allocate %d bytes, but %s has %d left", more, by, room),
			Smallest: smallest,
		}
	}
	return nil
}
