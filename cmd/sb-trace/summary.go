package main

import (
	"context"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/trace"
)

func summaryVerb() cli.Verb {
	return cli.Verb{
		Name:    "summary",
		Args:    "[TRACE]",
		Summary: "sums a trace up: memory, speed, reads, tiers, the slowest ops",
		Long:    "A trace that is cut off, of a run that goes on or was killed, has a summary too.",
		Example: "sb-trace summary t.jsonl\nsb-trace summary --json t.jsonl | jq .read_bytes_per_token",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			json := cli.JSONFlag(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				name, r, err := env.OpenLines(cli.Arg(args, 0))
				if err != nil {
					return err
				}
				defer r.Close()
				s, err := cli.Await(ctx, func() (*trace.Summary, error) { return trace.Summarize(name, r) })
				if err != nil {
					return err
				}
				if s.Synthetic {
					env.Notef("synthetic: the plan or the model is made up, its quality means nothing")
				}
				if !*json {
					return s.Print(env.Stdout)
				}
				text, err := jsonio.Marshal(s)
				if err != nil {
					return err
				}
				return env.WriteDocument("", text)
			}
		},
	}
}
