package run

import (
	"fmt"
	"time"

	"substrate/pkg/doc"
)

// Strategy is what an op does in mode fastest whose records miss their
// deadline.
type Strategy uint8

// Strategies, as plans name them.
const (
	// Stall waits, however long it takes.
	Stall Strategy = iota
	// SkeletonOnly computes with the records that are resident: a coarser
	// version of the same function.
	SkeletonOnly
	// SharedExpert leaves a routed expert out: the layer's shared expert, which
	// serves every token, stands in for it.
	SharedExpert
	// AbortToken gives the token up, and with it the generation.
	AbortToken
	strategies
)

var strategyNames = [strategies]string{doc.FallbackStall, doc.FallbackSkeletonOnly, doc.FallbackSharedExpert, doc.FallbackAbortToken}

// String is the strategy's name in plans and traces.
func (s Strategy) String() string { return strategyNames[s] }

// parseStrategy reads a tier's fallback, which the plan's validation knows.
func parseStrategy(name string) Strategy {
	for s, n := range strategyNames {
		if n == name {
			return Strategy(s)
		}
	}
	return Stall
}

// until is how long a strategy waits of what a deadline allows: who stalls
// waits for ever.
func (s Strategy) until(deadline time.Duration) time.Duration {
	if s == Stall {
		return never
	}
	return deadline
}

// A FallbackPlanner decides what an op does whose records are late. It follows
// the plan where that is possible: a strategy that needs what is not there
// becomes a skeleton, and without one a stall. Nothing is ever computed from
// records that are not whole.
type FallbackPlanner struct {
	taken [strategies]int64
}

// Decide picks a strategy. skeleton: a coarser level of the op is resident;
// shared: the layer has a shared expert, and the op is a routed one.
func (f *FallbackPlanner) Decide(planned Strategy, skeleton, shared bool) Strategy {
	chosen := planned
	if planned == SharedExpert && !shared || planned == SkeletonOnly && !skeleton {
		chosen = Stall
		if skeleton {
			chosen = SkeletonOnly
		}
	}
	f.taken[chosen]++
	return chosen
}

// Taken is how often a strategy was chosen.
func (f *FallbackPlanner) Taken(s Strategy) int64 { return f.taken[s] }

// A DeadlineError ends a generation whose plan says abort_token.
type DeadlineError struct {
	Op   string
	Tier int
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf("op %s tier %d: its records missed their deadline, and the plan's fallback is %s", e.Op, e.Tier, AbortToken)
}

// ExitCode is that of a disk that did not deliver.
func (e *DeadlineError) ExitCode() int { return 4 }
