package main

import (
	"context"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/trace"
)

func validateVerb() cli.Verb {
	return cli.Verb{
		Name:    "validate",
		Args:    "[TRACE]",
		Summary: "checks that a trace is whole and that its lines agree with each other",
		Long: "Every line is of a known type with known members; run_start is first and run_end last; time and tokens never go back; the " +
			"ledger fits the cap; what run_end says of tokens, times, reads and the peak is what the lines add up to. Exit status 3 and the " +
			"first line that is wrong otherwise. Nothing is printed for a good trace.",
		Example: "sb-trace validate t.jsonl",
		Setup: func(*pflag.FlagSet) cli.RunFunc {
			return func(ctx context.Context, env *cli.Env, args []string) error {
				name, r, err := env.OpenLines(cli.Arg(args, 0))
				if err != nil {
					return err
				}
				defer r.Close()
				_, err = cli.Await(ctx, func() (struct{}, error) { return struct{}{}, trace.Validate(name, r) })
				return err
			}
		},
	}
}
