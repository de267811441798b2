package main

import (
	"context"

	"github.com/spf13/pflag"

	"substrate/internal/budget"
	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func planVerb() cli.Verb {
	return cli.Verb{
		Args:    "[TABLE|PROFILE|CONFIG]",
		Summary: "makes a plan from a table of sb-calibrate measure, within a budget",
		Long: "The plan has the least predicted KL divergence that the memory and the speed allow, for every op and " +
			"expert a default and what it may escalate to, and where every record lives. It goes to stdout, what to expect " +
			"of it to stderr. If no plan fits, exit status 1 and the smallest --max-ram that would. Instead of a table, a profile or " +
			"the config.json of a model will do: its losses are then priors, and the plan says so.",
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
	// What cannot be written is refused before the work.
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	in, err := flags.Open(env, arg)
	if err != nil {
		return err
	}
	p, err := cli.Await(ctx, func() (*doc.Plan, error) { return plan.Solve(in.Table, in.Machine, in.Budget, in.Options) })
	if err != nil {
		return in.Explain(err)
	}
	if in.Kind != doc.InputTable {
		env.Warnf("%s is a %s: the losses are priors, nobody measured them", in.Name, in.Kind)
	}
	summarize(env, p)
	text, err := doc.Write(p)
	if err != nil {
		return err
	}
	return out.Finish(text)
}
