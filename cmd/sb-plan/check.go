package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

func checkVerb() cli.Verb {
	return cli.Verb{
		Name:    "check",
		Args:    "PLAN [TABLE]",
		Summary: "verifies a plan and the certificate of its quality, without the solver",
		Long: "Without a table: the invariants of the plan, and what its certificate says about itself. With the table (and the " +
			"--machine) that the plan was made of: adds its losses, bytes and times up anew, and proves the lower bound from the " +
			"certificate's multipliers, in integers, op by op. Exit status 1 if a claim does not hold.",
		Example: "sb-plan check plan.json table.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			machine := fs.String("machine", "", "measurements of the computer that the plan was made with, `FILE`")
			return func(_ context.Context, env *cli.Env, args []string) error {
				return checkPlan(env, args, *machine)
			}
		},
	}
}

func checkPlan(env *cli.Env, args []string, machinePath string) error {
	p, err := readDocument[doc.Plan](env, cli.Arg(args, 0))
	if err != nil {
		return err
	}
	if len(args) < 2 {
		c, err := plan.CheckAlone(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "the plan holds its invariants; its certificate claims a gap of %s\n", gapOf(c.Value, c.Claimed))
		return nil
	}
	table, err := readDocument[doc.Table](env, args[1])
	if err != nil {
		return err
	}
	var machine *doc.Machine
	if machinePath != "" {
		if machine, err = readDocument[doc.Machine](env, machinePath); err != nil {
			return err
		}
	}
	c, err := plan.Check(p, table, machine)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "the plan loses %d picoNats; its multipliers prove that none loses less than %d: gap %s\n", c.Value, c.LowerBound, gapOf(c.Value, c.LowerBound))
	if c.BySearch {
		fmt.Fprintf(env.Stdout, "branch and bound claims %d: gap %s; that is not proved here\n", c.Claimed, gapOf(c.Value, c.Claimed))
	}
	return nil
}

// readDocument reads a document that an argument names.
func readDocument[T any, P interface {
	*T
	doc.Document
}](env *cli.Env, arg string) (*T, error) {
	name, text, err := env.ReadDocument(arg)
	if err != nil {
		return nil, err
	}
	return doc.Read[T, P](name, text)
}

// gapOf writes the distance between a value and its bound in percent.
func gapOf(value, bound int64) string {
	if value <= 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2g %%", 100*float64(value-bound)/float64(value))
}
