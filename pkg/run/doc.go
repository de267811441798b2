// Package run executes a plan over a store, never above its memory cap.
//
// A run solves nothing. Open works out what every purpose of memory takes,
// refuses if that does not fit the cap, and allocates everything at once:
// resident records, the ring that dense ops stream through, the slots of
// experts, the KV cache, registers. Generate then walks the ops of each step
// in topological order; it selects among the plan's tiers and waits for reads
// where it must.
//
// A token's loop, per op: its active tier, the reads that its coming asks for,
// waiting for its own, what to do if they are late, the kernel, the monitor, the
// verifier, the tier controller, what leaves memory. At the token's end:
// persistence, drift.
//
// The files: program.go binds plan and store, residency.go decides where
// records live under a cap, ledger.go admits or refuses, place.go allocates and
// binds, manager.go keeps the account of what is where, prefetch.go reads,
// ring.go and bank.go hold what streams, history.go ranks experts, step.go
// walks the ops, generate.go the tokens, controller.go switches tiers and
// pool.go makes the switches act, verifier.go senses disagreement, forecast.go,
// monitor.go and fallback.go know what to do about time.
package run

import "fmt"

// Mode says what a run may trade.
type Mode uint8

const (
	// Scheduled runs ops at their default tier. Upgrades act at fixed token
	// indices, so that the output does not depend on the disk.
	Scheduled Mode = iota
	// Exact runs every op at the plan's top tier and waits for its reads.
	Exact
	// Fastest is Scheduled with a clock: changes act as they arrive, late
	// records have fallbacks, drift demotes. Its output may vary.
	Fastest
)

// ParseMode reads the name of a mode.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "scheduled":
		return Scheduled, nil
	case "exact":
		return Exact, nil
	case "fastest":
		return Fastest, nil
	}
	return 0, fmt.Errorf("mode %q: want scheduled, exact or fastest", s)
}

// String is the mode's name.
func (m Mode) String() string { return [...]string{"scheduled", "exact", "fastest"}[m] }
