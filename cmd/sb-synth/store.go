package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/store"
	"substrate/pkg/synth"
)

func storeVerb() cli.Verb {
	return cli.Verb{
		Name:    "store",
		Args:    "[PLAN]",
		Summary: "writes the packed store of a plan for a model of random weights",
		Long: "The store is what sb-pack makes of the checkpoint of the same flags, without that checkpoint on disk. The plan must be for " +
			"a model of the same shape. Prints the line that sb-run reads.",
		Example: "sb-synth table --layers 16 --experts 64 | sb-plan --max-ram 2G | sb-synth store --layers 16 --experts 64 -o moe.sb",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			s := storeFlags{shape: shapeFlags(fs), seed: cli.SeedFlag(fs), threads: cli.ThreadsFlag(fs)}
			weightFlags(fs, s.shape, &s.weights)
			fs.StringVarP(&s.output, "output", "o", "", "make the folder `STORE`")
			return s.run
		},
	}
}

type storeFlags struct {
	shape   *synth.Shape
	seed    *uint64
	weights synth.Weights
	threads *cli.Threads
	output  string
}

func (f *storeFlags) run(ctx context.Context, env *cli.Env, args []string) error {
	if f.output == "" {
		return cli.Usage("-o STORE is missing")
	}
	f.weights.Seed = *f.seed
	m, err := synth.NewModel(*f.shape, f.weights)
	if err != nil {
		return err
	}
	name, text, err := env.ReadDocument(cli.Arg(args, 0))
	if err != nil {
		return err
	}
	p, err := doc.Read[doc.Plan](name, text)
	if err != nil {
		return err
	}
	config, tokenizer, err := m.Texts()
	if err != nil {
		return err
	}
	build, err := store.NewBuild(store.Spec{
		Profile: m.Profile(),
		Plans:   []store.NamedPlan{{Name: "default", Plan: p}},
		Texts:   []store.Text{{File: "tokenizer.json", Data: tokenizer}, {File: "config.json", Data: config}},
	})
	if err != nil {
		return cli.WithHint(err, "give the flags that the plan's table was made with")
	}
	if free, err := (vfs.OS{}).Free(filepath.Dir(filepath.Clean(f.output))); err == nil && free < build.Bytes() {
		return cli.No("%s needs %s, the disk has %s free", f.output, cli.Size(build.Bytes()), cli.Size(free))
	}
	fingerprint, err := m.WeightsSHA256(ctx)
	if err != nil {
		return err
	}
	progress := env.Progress("packing", "bytes", build.Bytes())
	defer progress.Close()
	packed, err := build.Write(ctx, f.output, store.Options{
		Source: m, Weights: m.WeightsSHA256, Fingerprint: fingerprint, Threads: f.threads.Count(), Note: env.Notef,
		Progress: func(_ string, bytes int64) { progress.Add(bytes) },
	})
	progress.Close()
	if err != nil {
		return err
	}
	env.Notef("synthetic: %s has random weights, its quality means nothing", f.output)
	line, err := doc.WriteLine(packed)
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(line)
	return err
}
