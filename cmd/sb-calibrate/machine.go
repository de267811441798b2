package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

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
				out, err := env.Create(*output)
				if err != nil {
					return err
				}
				defer out.Abort()
				m, err := measureMachine(ctx, env, *dir, b)
				if err != nil {
					return err
				}
				text, err := doc.Write(m)
				if err != nil {
					return err
				}
				return out.Finish(text)
			}
		},
	}
}

func measureMachine(ctx context.Context, env *cli.Env, dir string, b *backends.Flags) (*doc.Machine, error) {
	unlock, err := lockMachine(ctx, env)
	if err != nil {
		return nil, err
	}
	defer unlock()
	m := &doc.Machine{Format: doc.FormatMachine, Source: doc.SourceMeasured, Threads: b.Threads.Count()}
	reads := env.Progress("reading", "points", 0)
	defer reads.Close()
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

// lockMachine waits until no other process measures this machine: two at once
// would measure each other.
func lockMachine(ctx context.Context, env *cli.Env) (unlock func(), err error) {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("substrate-machine-%d.lock", os.Getuid()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: name, Err: err}, f.Close())
		}
		if !told {
			env.Notef("waiting for another measurement of this machine")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
