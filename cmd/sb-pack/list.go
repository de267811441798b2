package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/store"
)

func listVerb() cli.Verb {
	return cli.Verb{
		Name:    "ls",
		Args:    "STORE",
		Summary: "lists the records of a store",
		Long: "A line for each record: id, encoding, bytes in the file, bytes in memory, file and offset, and of a store " +
			"with several plans which of them have it. With --json it is the store's manifest.",
		Example: "sb-pack ls m.sb",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			asJSON := cli.JSONFlag(fs)
			return func(_ context.Context, env *cli.Env, args []string) error { return list(env, args[0], *asJSON) }
		},
	}
}

func list(env *cli.Env, path string, asJSON bool) error {
	s, err := store.Open(path)
	if err != nil {
		return err
	}
	m := s.Manifest()
	if asJSON {
		b, err := doc.Write(m)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(b)
		return err
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	plans := plansOf(m)
	fmt.Fprint(w, "RECORD\tENCODING\tSTORED\tRAW\tFILE\tOFFSET")
	if len(m.Plans) > 1 {
		fmt.Fprint(w, "\tPLANS")
	}
	fmt.Fprintln(w)
	for i := range m.Records {
		r := &m.Records[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%d", r.ID, r.Encoding, r.Bytes, s.Layout(r).Bytes, m.Files[r.File].File, r.Offset)
		if len(m.Plans) > 1 {
			fmt.Fprint(w, "\t", strings.Join(plans[i], ","))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// plansOf are the names of the plans that have each record.
func plansOf(m *doc.Manifest) [][]string {
	plans := make([][]string, len(m.Records))
	for i := range m.Plans {
		for _, n := range m.Plans[i].Records {
			plans[n] = append(plans[n], m.Plans[i].Name)
		}
	}
	return plans
}
