package main

import (
	"errors"
	"fmt"
	"strings"

	"substrate/internal/cli"
	"substrate/pkg/doc"
)

// report is what the demonstration shows.
type report struct {
	plan                  *doc.Plan
	ops                   []string
	persistence           int
	default_, scripted    []float64 // KL by position
	series                *series
	plainP99, scriptedP99 int64
}

// span is positions [from, to).
type span struct {
	name     string
	from, to int
}

// spans are the tokens before, while and after the ops are up. Disagreement at
// token quiet+1 acts at the next, and the last at quiet+disagrees; what is quiet
// for persistence_tokens goes back.
func (r *report) spans() []span {
	up, down := quiet+2, quiet+disagrees+r.persistence+1
	return []span{{"before", 1, up}, {"during", up, down}, {"after", down, len(r.scripted)}}
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// tierAt is the tier that an op ran at.
func (r *report) tierAt(op string, token int64) int {
	for _, l := range r.series.ops {
		if l.Op == op && l.Token == token {
			return l.Tier
		}
	}
	return -1
}

// text is the report to read.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attention ops disagree by %.2f from token %d to %d (threshold %.2f): %s\n",
		len(r.ops), amount, quiet+1, quiet+disagrees, r.plan.Escalation.Threshold, strings.Join(r.ops, " "))
	for _, l := range r.series.tiers {
		fmt.Fprintf(&b, "token %3d  %-16s tier %d -> %d  %-10s pool %8d of %d bytes\n", l.Token, l.Op, l.From, l.To, l.Reason, l.PoolUsed, r.plan.PoolBytes)
	}
	fmt.Fprintf(&b, "\nKL to the plan's top level, nats per token, mean over tokens\n%-8s %10s %10s %10s\n", "", "tokens", "default", "scripted")
	for _, s := range r.spans() {
		fmt.Fprintf(&b, "%-8s %4d - %3d %10.4f %10.4f\n", s.name, s.from, s.to-1, mean(r.default_[s.from:s.to]), mean(r.scripted[s.from:s.to]))
	}
	fmt.Fprintf(&b, "\np99 of a token's ops, in the calmest of the rounds: %.3f ms at the default tiers, %.3f ms with the script: %.2fx\n",
		float64(r.plainP99)/1e6, float64(r.scriptedP99)/1e6, float64(r.scriptedP99)/float64(r.plainP99))
	return b.String()
}

// judge finds broken promises.
func (r *report) judge() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	spans := r.spans()
	for _, op := range r.ops {
		check(r.tierAt(op, quiet+1) == 0, "%s: at token %d not at tier 0", op, quiet+1)
		check(r.tierAt(op, quiet+2) == 1, "%s: at the token after the first disagreement not at tier 1", op)
		check(r.tierAt(op, int64(spans[1].to-1)) > 0, "%s: went back before %d quiet tokens", op, r.persistence)
		check(r.tierAt(op, int64(spans[1].to)) == 0, "%s: not back at tier 0 after %d quiet tokens", op, r.persistence)
	}
	used := map[string]int64{} // by op
	for _, l := range r.series.tiers {
		used[l.Op] = r.plan.Bundle(l.Op).Tiers[l.To].DeltaBytes
		var sum int64
		for _, n := range used {
			sum += n
		}
		check(l.PoolUsed == sum && sum <= r.plan.PoolBytes, "token %d: the pool has %d bytes in use, the tiers take %d of %d", l.Token, l.PoolUsed, sum, r.plan.PoolBytes)
	}
	for i, s := range spans {
		d, v := mean(r.default_[s.from:s.to]), mean(r.scripted[s.from:s.to])
		switch i {
		case 0:
			check(d == v, "the KL before the escalation is %g, without the script %g", v, d)
		case 1:
			check(v < d, "the KL during the escalation is %g, without it %g: quality did not recover", v, d)
		}
	}
	check(float64(r.scriptedP99) <= 1.2*float64(r.plainP99), "the p99 of a token's time is %.2f times that without the script", float64(r.scriptedP99)/float64(r.plainP99))
	if len(wrong) > 0 {
		return cli.No("%w", errors.Join(wrong...))
	}
	return nil
}
