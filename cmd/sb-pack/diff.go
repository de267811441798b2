package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/store"
)

func diffVerb() cli.Verb {
	return cli.Verb{
		Name:    "diff",
		Args:    "STORE STORE",
		Summary: "compares two stores",
		Long: "A line for each record, plan and text that only one of them has: - for the first store, + for the second; then name, encoding or " +
			"start of the digest, and bytes. The manifests are compared, the records are not read: see sb-pack verify. The exit code is 0 if the " +
			"stores hold the same, 1 if they differ.",
		Example: "sb-pack diff 8G.sb 12G.sb",
		Setup: func(*pflag.FlagSet) cli.RunFunc {
			return func(_ context.Context, env *cli.Env, args []string) error { return diff(env, args[0], args[1]) }
		},
	}
}

func diff(env *cli.Env, first, second string) error {
	a, err := store.Open(first)
	if err != nil {
		return err
	}
	b, err := store.Open(second)
	if err != nil {
		return err
	}
	d := store.Compare(a, b)
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	var bytes [2]int64
	for i := range d.Parts {
		p := &d.Parts[i]
		sign, of := "-", 0
		if p.Second {
			sign, of = "+", 1
		}
		bytes[of] += p.Bytes
		fmt.Fprintf(w, "%s %s\t%s\t%s\t%d\n", sign, p.Kind, p.Name, p.Detail, p.Bytes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(env.Stdout, "%s, %s, in both; %s in %s alone, %s in %s\n",
		plural(d.Common, "record"), cli.Size(d.CommonBytes), cli.Size(bytes[0]), first, cli.Size(bytes[1]), second); err != nil {
		return err
	}
	if len(d.Parts) > 0 {
		return cli.No("%s and %s differ in %s", first, second, plural(len(d.Parts), "place"))
	}
	return nil
}
