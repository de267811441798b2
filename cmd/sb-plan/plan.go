package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/spf13/pflag"

	"substrate/internal/budget"
	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func planVerb() cli.Verb {
	return cli.Verb{
		Args:    "[TABLE]",
		Summary: "makes a plan from a table of sb-calibrate measure, within a budget",
		Long: "The plan has the least predicted KL divergence that the memory and the speed allow, for every op and " +
			"expert a default and what it may escalate to, and where every record lives. It goes to stdout, what to expect " +
			"of it to stderr. If no plan fits, exit status 1 and the smallest --max-ram that would.",
		Example: `sb-calibrate measure --model model.gguf | sb-plan --max-ram 8G -o plan.json
			sb-synth table --layers 27 --experts 64 --top-k 8 | sb-plan --max-ram 36G --quality 0.05 --objective cap --tps 4 | sb-plan show -`,
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			flags := budget.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				return makePlan(ctx, env, flags, cli.Arg(args, 0), *output)
			}
		},
	}
}

func makePlan(ctx context.Context, env *cli.Env, flags *budget.Flags, arg, output string) error {
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
	name, text, err := env.ReadDocument(arg)
	if err != nil {
		return err
	}
	if format, err := doc.Format(name, text); err == nil && format == doc.FormatProfile {
		return cli.WithHint(cli.BadDocument("%s: a profile has no measurements to plan with", name), "sb-feasible takes profiles; sb-calibrate measure and sb-synth table make tables")
	}
	table, err := doc.Read[doc.Table](name, text)
	if err != nil {
		return err
	}
	options := flags.Options
	sum := sha256.Sum256(text)
	options.TableSHA256 = hex.EncodeToString(sum[:])
	p, err := cli.Await(ctx, func() (*doc.Plan, error) { return plan.Solve(table, machine, b, options) })
	if bad := (*plan.TableError)(nil); errors.As(err, &bad) {
		return cli.BadDocument("%s: %w", name, err)
	}
	if err != nil {
		return budget.Explain(err)
	}
	summarize(env, p)
	if text, err = doc.Write(p); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	return out.Commit()
}
