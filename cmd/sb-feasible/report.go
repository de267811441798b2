package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"substrate/internal/budget"
	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func verb() cli.Verb {
	return cli.Verb{
		Args:    "[TABLE|PROFILE|CONFIG]",
		Summary: "answers whether a model can run within a budget, and which smallest change would make it",
		Long: "Four axes: memory, bandwidth, latency, quality, each with what it needs, what there is and the slack. The model is a table, or " +
			"a profile or config.json, whose losses are then priors and say so. Every change that is proposed was tried by planning with it. " +
			"FAST is 15 tokens per second or more, GOOD 8, USABLE 3. The report goes to stdout whatever the answer; exit status 1 means no.",
		Example: "sb-feasible --max-ram 2G --quality 0.05 table.json\nsb-calibrate profile --config-only config.json | sb-feasible --max-ram 8G",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			asJSON := cli.JSONFlag(fs)
			flags := budget.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				return report(ctx, env, flags, cli.Arg(args, 0), *output, *asJSON)
			}
		},
	}
}

func report(ctx context.Context, env *cli.Env, flags *budget.Flags, arg, output string, asJSON bool) error {
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	in, err := flags.Open(env, arg)
	if err != nil {
		return err
	}
	name := ""
	if arg != "" && arg != "-" {
		name = arg
	}
	f, err := cli.Await(ctx, func() (*doc.Feasibility, error) {
		return plan.Feasible(plan.Question{
			Table: in.Table, Input: in.Kind, Machine: in.Machine, Budget: in.Budget, Options: in.Options,
			Command: func(b doc.Budget) string { return flags.Command(b, name) },
		})
	})
	if err != nil {
		return in.Explain(err)
	}
	if asJSON || output != "" {
		text, err := doc.Write(f)
		if err != nil {
			return err
		}
		if err := out.Finish(text); err != nil {
			return err
		}
	} else {
		printReport(env.Stdout, f)
	}
	if f.Status == doc.StatusInfeasible {
		err := cli.No("infeasible on %s", failing(f))
		if f.Command != "" {
			err = cli.WithHint(err, "%s", f.Command)
		}
		return err
	}
	return nil
}

// failing names the axes that fail, the binding one first.
func failing(f *doc.Feasibility) string {
	names := []string{f.BindingAxis}
	for _, a := range f.Axes {
		if !a.OK && a.Axis != f.BindingAxis {
			names = append(names, a.Axis)
		}
	}
	return strings.Join(names, ", ")
}

func printReport(w io.Writer, f *doc.Feasibility) {
	synthetic := ""
	if f.Synthetic {
		synthetic = ", synthetic: no quality is claimed"
	}
	fmt.Fprintf(w, "%s: %s, %s (losses: %s%s; speeds: %s; from a %s)\n", f.ModelID, f.Status, verdicts[f.Verdict], f.Source, synthetic, f.SpeedSource, f.Input)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, a := range f.Axes {
		verdict := "ok"
		if !a.OK {
			verdict = "fails"
		}
		fmt.Fprintf(t, "  %s\t%s\tneeds %s\tof %s\tslack %s\t%s\n", a.Axis, verdict, amount(a.Required, a.Unit), amount(a.Available, a.Unit), amount(a.Slack, a.Unit), a.Reason)
	}
	t.Flush()
	if p := f.Predicted; p != nil {
		fmt.Fprintf(w, "plan: KL %.3g nats per token (%s), %.3g tokens per second (%.3g to %.3g; machine: %s)\n",
			p.KL, p.KLSource, p.TokensPerSec, p.TokensPerSecLow, p.TokensPerSecHigh, p.SpeedSource)
	}
	printStyles(w, f.Styles)
	for _, r := range f.RelaxOptions {
		fmt.Fprintf(w, "would do: %s\n", r.Command)
	}
	if j := f.Joint; j != nil && len(j.Changes) > 1 {
		fmt.Fprintf(w, "cheapest together: %s\n", j.Command)
	}
	if f.Status == doc.StatusFeasible {
		fmt.Fprintf(w, "next: %s\n", f.Command)
	}
}

// verdicts are the words for people.
var verdicts = map[string]string{
	doc.VerdictFast:       "FAST",
	doc.VerdictGood:       "GOOD",
	doc.VerdictUsable:     "USABLE",
	doc.VerdictSlow:       "SLOW",
	doc.VerdictNotHere:    "NOT IN THIS BUDGET",
	doc.VerdictImpossible: "IMPOSSIBLE",
}

// printStyles compares the ways to hold the model.
func printStyles(w io.Writer, styles []doc.Style) {
	if len(styles) == 0 {
		return
	}
	fmt.Fprintln(w, "best of each way to hold the model:")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, s := range styles {
		if s.OK {
			fmt.Fprintf(t, "  %s\tKL %.3g\t%.3g tokens per second (%.3g to %.3g)\t%s\n", s.Style, s.KL, s.TokensPerSec, s.TokensPerSecLow, s.TokensPerSecHigh, s.Reason)
		} else {
			fmt.Fprintf(t, "  %s\tnone\t%s\t\n", s.Style, s.Reason)
		}
	}
	t.Flush()
}

// amount writes a number of an axis for people.
func amount(v float64, unit string) string {
	switch unit {
	case "bytes":
		if v < 0 {
			return "-" + cli.Size(int64(-v)).String()
		}
		return cli.Size(int64(v)).String()
	case "bytes_per_sec":
		return fmt.Sprintf("%.3g MB/s", v/1e6)
	case "ns_per_token":
		return fmt.Sprintf("%.3g ms per token", v/1e6)
	}
	return fmt.Sprintf("%.3g nats", v)
}
