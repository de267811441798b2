package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/pkg/backend"
	"substrate/pkg/calib"
	"substrate/pkg/doc"
)

func machineVerb() cli.Verb {
	return cli.Verb{
		Name:    "machine",
		Summary: "measures this computer: disk, kernels, memory",
		Long: "The disk is read through a temporary file of 512 MiB under --dir, past the page cache; it should be " +
			"the disk that stores will be on. Nothing else should run meanwhile.",
		Example: "sb-calibrate machine -o machine.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			dir := fs.String("dir", ".", "measure the disk under `DIR`")
			b := backends.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				m, err := measureMachine(ctx, env, *dir, b)
				if err != nil {
					return err
				}
				text, err := doc.Write(m)
				if err != nil {
					return err
				}
				return env.WriteDocument(*output, text)
			}
		},
	}
}

func measureMachine(ctx context.Context, env *cli.Env, dir string, b *backends.Flags) (*doc.Machine, error) {
	m := &doc.Machine{Format: doc.FormatMachine, Source: doc.SourceMeasured, Threads: b.Threads.Count()}
	reads := env.Progress("reading", "points", 0)
	defer reads.Close()
	var err error
	m.Reads, err = calib.MeasureReads(ctx, dir, func(done, total int) { reads.Set(int64(done)) })
	if err != nil {
		return nil, err
	}
	reads.Close()
	kernels := env.Progress("timing kernels", "kernels", 0)
	defer kernels.Close()
	open := func() (backend.Backend, error) {
		opened, err := b.Open()
		if err == nil {
			m.CPUPath = opened.Path()
		}
		return opened, err
	}
	var dispatchNs int64
	m.Kernels, dispatchNs, err = calib.MeasureKernels(ctx, open, b.Activations, func(done, total int) { kernels.Set(int64(done)) })
	if err != nil {
		return nil, err
	}
	m.Memory, err = calib.Memory(os.DirFS("/"), dispatchNs)
	return m, err
}
