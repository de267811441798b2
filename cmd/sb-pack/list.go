package main

import (
	"context"
	"fmt"
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
		Long:    "A line for each record: id, encoding, bytes in the file, bytes in memory, file and offset. With --json it is the store's manifest.",
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
	fmt.Fprintln(w, "RECORD\tENCODING\tSTORED\tRAW\tFILE\tOFFSET")
	for i := range m.Records {
		r := &m.Records[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%d\n", r.ID, r.Encoding, r.Bytes, s.Layout(r).Bytes, m.Files[r.File].File, r.Offset)
	}
	return w.Flush()
}
