package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/store"
)

func verifyVerb() cli.Verb {
	return cli.Verb{
		Name:    "verify",
		Args:    "STORE",
		Summary: "reads a whole store back and checks it",
		Long:    "Every file is compared with its sha256, every record with its checksum, every plan with its records. Damage is listed on stdout, and the exit code is 4.",
		Example: "sb-pack verify m.sb",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			return func(ctx context.Context, env *cli.Env, args []string) error { return verify(ctx, env, args[0]) }
		},
	}
}

func verify(ctx context.Context, env *cli.Env, path string) error {
	s, err := store.Open(path)
	if err != nil {
		return err
	}
	m := s.Manifest()
	var bytes int64
	for i := range m.Files {
		bytes += m.Files[i].Bytes
	}
	progress := env.Progress("verifying", "bytes", bytes)
	defer progress.Close()
	damage, err := s.Verify(ctx, progress.Add)
	progress.Close()
	if err != nil {
		return err
	}
	for _, d := range damage {
		fmt.Fprintln(env.Stdout, d)
	}
	if len(damage) > 0 {
		return cli.WithHint(cli.IO("%s is damaged in %s", path, plural(len(damage), "place")), "remove it and run sb-pack again")
	}
	fmt.Fprintf(env.Stdout, "%s: %s in %s, %s, intact\n", path, plural(len(m.Records), "record"), plural(len(m.Files), "file"), cli.Size(bytes))
	return nil
}
