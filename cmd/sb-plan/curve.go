package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/budget"
	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

// curvePoints is how many budgets a curve has unless they are named.
const curvePoints = 16

func curveVerb() cli.Verb {
	return cli.Verb{
		Name:    "curve",
		Args:    "[TABLE]",
		Summary: "prints what every budget makes of a table: quality, speed, what changes",
		Long: "One line of JSON for each budget, ascending: the KL of the best plan and of the best single encoding at equal bytes, " +
			"speed, reads, what changes from the budget before, and whether the curve has a knee there. The budgets are those of " +
			"--budgets, or so many as --points between the smallest that works and --max-ram, evenly by their logarithm.",
		Example: "sb-plan curve --budgets 8G,12G,16G,24G table.json\nsb-plan curve --max-ram 64G table.json | jq -r 'select(.knee) | .max_ram_bytes'",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			flags := budget.Define(fs)
			list := fs.String("budgets", "", "budgets to solve for, `SIZES` as 8G,12G,16G")
			points := fs.Int("points", curvePoints, "without --budgets, solve for `N` budgets up to --max-ram")
			return func(ctx context.Context, env *cli.Env, args []string) error {
				return printCurve(ctx, env, flags, *list, *points, cli.Arg(args, 0))
			}
		},
	}
}

func printCurve(ctx context.Context, env *cli.Env, flags *budget.Flags, list string, points int, arg string) error {
	var ram []int64
	for word := range strings.SplitSeq(list, ",") {
		if list == "" {
			break
		}
		var n cli.Size
		if err := n.Set(strings.TrimSpace(word)); err != nil || n < 1 {
			return cli.Usage("--budgets %q: want sizes as 8G,12G", list)
		}
		ram = append(ram, int64(n))
	}
	if len(ram) > 0 {
		flags.WithoutMaxRAM(ram[0]) // each of the list takes its place
	}
	if points < 1 || points > 1<<12 {
		return cli.Usage("--points %d: want 1 to 4096", points)
	}
	in, err := flags.Open(env, arg)
	if err != nil {
		return err
	}
	if len(ram) == 0 {
		if ram, err = plan.Budgets(in.Table, in.Machine, in.Budget, in.Options, points); err != nil {
			return in.Explain(err)
		}
	}
	return plan.Curve(in.Table, in.Machine, in.Budget, in.Options, ram, func(p *doc.CurvePoint) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		line, err := doc.WriteLine(p)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(line)
		return err
	})
}
