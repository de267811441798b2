package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
)

// largest is how many escalations show lists.
const largest = 6

func showVerb() cli.Verb {
	return cli.Verb{
		Name:    "show",
		Args:    "[OP] [PLAN]",
		Summary: "prints a plan for people: memory, pool, the largest escalations, an op's ladder",
		Long:    "With one argument, that is the plan and the ladder is that of the largest escalation. With an op, only its ladder is printed.",
		Example: "sb-plan show plan.json\nsb-plan show block_5.attn plan.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			return func(_ context.Context, env *cli.Env, args []string) error {
				op, path := "", cli.Arg(args, 0)
				if len(args) == 2 {
					op, path = args[0], args[1]
				}
				name, text, err := env.ReadDocument(path)
				if err != nil {
					return err
				}
				p, err := doc.Read[doc.Plan](name, text)
				if err != nil {
					return err
				}
				if op != "" {
					return showOp(env.Stdout, p, op)
				}
				return showPlan(env.Stdout, p)
			}
		},
	}
}

func showPlan(w io.Writer, p *doc.Plan) error {
	io.WriteString(w, expectations(p))
	fmt.Fprintf(w, "\nops: %d, records: %d\n", len(p.OpBundles), len(p.Catalog))
	fmt.Fprintf(w, "default path peak RAM: %s (%d bytes)\n", size(p.PeakBytes-p.PoolBytes), p.PeakBytes-p.PoolBytes)
	fmt.Fprintf(w, "escalation pool: %s (%d bytes)\n", size(p.PoolBytes), p.PoolBytes)
	showResidency(w, "scheduled", p, &p.Scheduled)
	showResidency(w, "exact", p, &p.Exact)
	showSpeed(w, &p.Predicted)
	if q := p.PredictedExact; q != nil {
		fmt.Fprintf(w, "\nmode exact: KL %.3g, %.3g tokens per second (%.3g to %.3g), %s read per token\n", q.KL, q.TokensPerSec, q.TokensPerSecLow, q.TokensPerSecHigh, size(q.ReadBytesPerToken))
	}
	showPins(w, p)
	ops := escalations(p)
	if len(ops) == 0 {
		fmt.Fprintf(w, "\nno op can escalate\n")
		return showLadder(w, p, &p.OpBundles[0])
	}
	ops = ops[:min(largest, len(ops))]
	fmt.Fprintf(w, "\nlargest escalations:\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, b := range ops {
		fmt.Fprintf(t, "  %s\t%s -> %s\t+%s\trisk %.3g -> %.3g\n", b.Op, b.Tiers[0].Level, b.Tiers[1].Level, size(b.Tiers[1].DeltaBytes), b.Tiers[0].QualityRisk, b.Tiers[1].QualityRisk)
	}
	t.Flush()
	k := min(p.Escalation.MaxConcurrent, len(ops))
	var sum int64
	for _, b := range ops[:k] {
		sum += b.Tiers[1].DeltaBytes
	}
	fmt.Fprintf(w, "  at most %d at once: the largest %d take %s (%d bytes)\n", p.Escalation.MaxConcurrent, k, size(sum), sum)
	return showLadder(w, p, ops[0])
}

// showSpeed says what the time of a token is made of.
func showSpeed(w io.Writer, q *doc.Prediction) {
	if len(q.SpeedTerms) == 0 {
		return
	}
	fmt.Fprintf(w, "\na token (products and fixed, or read_ahead if that is longer, and demand):\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, term := range q.SpeedTerms {
		fmt.Fprintf(t, "  %s\t%.3g ms\t%s\n", term.Name, float64(term.Ns)/1e6, term.Source)
	}
	t.Flush()
}

// showPins lists the precisions that the plan's policy holds, and why.
func showPins(w io.Writer, p *doc.Plan) {
	if len(p.Pins) > 0 {
		fmt.Fprintf(w, "\npins:\n")
	}
	for i := range p.Pins {
		pin := &p.Pins[i]
		ops := pin.Ops[0]
		if n := len(pin.Ops); n > 1 {
			ops = fmt.Sprintf("%s and %d more", ops, n-1)
		}
		fmt.Fprintf(w, "  %s at %s\n", ops, pinText(pin))
	}
}

func pinText(pin *doc.PlanPin) string {
	if pin.Level != "" {
		return "level " + pin.Level + ": " + pin.Reason
	}
	return fmt.Sprintf("%d bits or more: %s", pin.MinBits, pin.Reason)
}

func showResidency(w io.Writer, mode string, p *doc.Plan, r *doc.Residency) {
	var slots, bytes int64
	for _, s := range r.Slots {
		slots += int64(s.Slots)
		bytes += int64(s.Slots) * s.SlotBytes
	}
	fmt.Fprintf(w, "%s: %s of %d records resident", mode, size(lineOf(r.Ledger, doc.LedgerWeights)), len(r.Resident))
	if slots > 0 {
		fmt.Fprintf(w, ", %d slots in %d layers take %s", slots, len(r.Slots), size(bytes))
	}
	if r.RingBytes > 0 {
		fmt.Fprintf(w, ", a ring of %s for ops that stream", size(r.RingBytes))
	}
	fmt.Fprintln(w)
}

func lineOf(lines []doc.LedgerLine, name string) int64 {
	for _, l := range lines {
		if l.Name == name {
			return l.Bytes
		}
	}
	return 0
}

// escalations lists the ops with a tier 1, largest delta first.
func escalations(p *doc.Plan) []*doc.OpBundle {
	var ops []*doc.OpBundle
	for i := range p.OpBundles {
		if len(p.OpBundles[i].Tiers) > 1 {
			ops = append(ops, &p.OpBundles[i])
		}
	}
	slices.SortStableFunc(ops, func(a, b *doc.OpBundle) int {
		return cmp.Compare(b.Tiers[1].DeltaBytes, a.Tiers[1].DeltaBytes)
	})
	return ops
}

func showOp(w io.Writer, p *doc.Plan, op string) error {
	i := slices.IndexFunc(p.OpBundles, func(b doc.OpBundle) bool { return b.Op == op })
	if i < 0 {
		return cli.WithHint(cli.Usage("the plan has no op %q", op), "ops are named as %s", p.OpBundles[len(p.OpBundles)/2].Op)
	}
	return showLadder(w, p, &p.OpBundles[i])
}

func showLadder(w io.Writer, p *doc.Plan, b *doc.OpBundle) error {
	fmt.Fprintf(w, "\nladder of %s (%s):\n", b.Op, b.Kind)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, tier := range b.Tiers {
		fmt.Fprintf(t, "  tier %d\t%s\trisk %.3g\t+%s\t%.3g us\t%s\tneeds %s\n", tier.Index, tier.Level, tier.QualityRisk,
			size(tier.DeltaBytes), float64(tier.ComputeNs)/1e3, tier.Fallback, strings.Join(tier.Requires, ", "))
		for _, f := range tier.Prefetch {
			wraps := ""
			if f.WrapsToken {
				wraps = " of the token before"
			}
			fmt.Fprintf(t, "  \tread %s from %s%s, due before %s\t\t\t\t\t\n", f.Record, f.StartDuring, wraps, f.DeadlineBefore)
		}
	}
	t.Flush()
	for i := range p.Pins {
		if slices.Contains(p.Pins[i].Ops, b.Op) {
			fmt.Fprintf(w, "  pinned at %s\n", pinText(&p.Pins[i]))
		}
	}
	return nil
}
