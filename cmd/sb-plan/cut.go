package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func cutVerb() cli.Verb {
	return cli.Verb{
		Name:    "cut",
		Args:    "[PLAN]",
		Summary: "re-budgets a plan without its table, and says how far that is from the best",
		Long: "Moves the ops that are resident along the hulls of their levels until the plan fits --max-ram, down or up; what " +
			"streams stays. The certificate moves along: the gap that is printed holds for all plans of the new budget. " +
			"Escalations that no longer fit go. Exit status 1 if the plan cannot be cut so far: then sb-plan can, from the table.",
		Example: "sb-plan cut --max-ram 6G plan.json -o smaller.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			ram := cli.MaxRAMFlag(fs)
			return func(_ context.Context, env *cli.Env, args []string) error {
				return cutPlan(env, ram, cli.Arg(args, 0), *output)
			}
		},
	}
}

func cutPlan(env *cli.Env, ram *cli.RAMSize, arg, output string) error {
	if !ram.IsSet() {
		return cli.WithHint(cli.Usage("--max-ram is missing: the budget to cut to"), "as in --max-ram 6G")
	}
	bytes := ram.Bytes(0, 0)
	if bytes <= 0 {
		return cli.Usage("--max-ram %s: want a size, as 6G: the plan is cut for any computer", ram)
	}
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	p, err := readDocument[doc.Plan](env, arg)
	if err != nil {
		return err
	}
	p, err = plan.Cut(p, bytes)
	if few := (*plan.CutError)(nil); errors.As(err, &few) {
		return cli.WithHint(err, "sb-plan --max-ram %s with the table, where more may stream", plan.FlagSize(bytes))
	}
	if err != nil {
		return err
	}
	summarize(env, p)
	text, err := doc.Write(p)
	if err != nil {
		return err
	}
	return out.Finish(text)
}
