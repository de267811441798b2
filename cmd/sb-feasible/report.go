package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"substrate/internal/budget"
	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func verb() cli.Verb {
	return cli.Verb{
		Args:    "[TABLE|PROFILE]",
		Summary: "answers whether a model can run within a budget, and which smallest change would make it",
		Long: "Four axes: memory, bandwidth, latency, quality. The model is a table, or a profile, whose losses are then " +
			"priors and say so. The report goes to stdout whatever the answer; exit status 1 means no.",
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
	machine, err := flags.ReadMachine(env)
	if err != nil {
		return err
	}
	b, err := flags.Budget(machine)
	if err != nil {
		return err
	}
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	table, err := readTable(env, arg)
	if err != nil {
		return err
	}
	f, err := cli.Await(ctx, func() (*doc.Feasibility, error) { return plan.Feasible(table, machine, b, flags.Options) })
	if err != nil {
		return budget.Explain(err)
	}
	if asJSON || output != "" {
		text, err := doc.Write(f)
		if err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
		if err := out.Commit(); err != nil {
			return err
		}
	} else {
		printReport(env.Stdout, f)
	}
	if f.Status == doc.StatusInfeasible {
		err := cli.No("infeasible on %s", f.BindingAxis)
		if f.Command != "" {
			err = cli.WithHint(err, "%s", f.Command)
		}
		return err
	}
	return nil
}

// readTable reads a table, or makes one of priors from a profile.
func readTable(env *cli.Env, arg string) (*doc.Table, error) {
	name, text, err := env.ReadDocument(arg)
	if err != nil {
		return nil, err
	}
	format, err := doc.Format(name, text)
	if err != nil {
		return nil, err
	}
	if format != doc.FormatProfile {
		return doc.Read[doc.Table](name, text)
	}
	p, err := doc.Read[doc.Profile](name, text)
	if err != nil {
		return nil, err
	}
	return plan.PriorTable(p)
}

func printReport(w io.Writer, f *doc.Feasibility) {
	synthetic := ""
	if f.Synthetic {
		synthetic = ", synthetic: no quality is claimed"
	}
	fmt.Fprintf(w, "%s: %s (losses: %s%s)\n", f.ModelID, f.Status, f.Source, synthetic)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, a := range f.Axes {
		verdict := "ok"
		if !a.OK {
			verdict = "fails"
		}
		fmt.Fprintf(t, "  %s\t%s\tneeds %s\tof %s\t%s\n", a.Axis, verdict, amount(a.Required, a.Unit), amount(a.Available, a.Unit), a.Reason)
	}
	t.Flush()
	if p := f.Predicted; p != nil {
		fmt.Fprintf(w, "plan: KL %.3g nats per token (%s), %.3g tokens per second (%.3g to %.3g; machine: %s)\n",
			p.KL, p.KLSource, p.TokensPerSec, p.TokensPerSecLow, p.TokensPerSecHigh, p.SpeedSource)
	}
	for _, r := range f.RelaxOptions {
		fmt.Fprintf(w, "would do: %s\n", r.Command)
	}
	if f.Status == doc.StatusFeasible {
		fmt.Fprintf(w, "next: %s\n", f.Command)
	}
}

// amount writes a number of an axis for people.
func amount(v float64, unit string) string {
	switch unit {
	case "bytes":
		return cli.Size(int64(v)).String()
	case "bytes_per_sec":
		return fmt.Sprintf("%.3g MB/s", v/1e6)
	case "ns_per_token":
		return fmt.Sprintf("%.3g ms per token", v/1e6)
	}
	return fmt.Sprintf("%.3g nats", v)
}
