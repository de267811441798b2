// Package run executes a plan over a store, never above its memory cap.
//
// A run solves nothing. Open works out what every purpose of memory takes,
// refuses if that does not fit the cap, and allocates everything at once:
// resident records, the ring that dense ops stream through, the slots of
// experts, the KV cache, registers. Generate then walks the ops of each step
// in topological order; it selects among the plan's tiers and waits for reads
// where it must.
//
// The files: program.go binds plan and store, residency.go decides where
// records live under a cap, ledger.go admits or refuses, place.go allocates and
// binds, ring.go and bank.go hold what streams, step.go walks the ops,
// generate.go the tokens, controller.go switches tiers.
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
)

// ParseMode reads the name of a mode.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "scheduled":
		return Scheduled, nil
	case "exact":
		return Exact, nil
	}
	return 0, fmt.Errorf("mode %q: want scheduled or exact", s)
}

// String is the mode's name.
func (m Mode) String() string { return [...]string{"scheduled", "exact"}[m] }
