// Package backends opens a backend by its name on the command line.
package backends

import (
	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/mlx"
	"substrate/pkg/backend/ref"
)

// Flags are the flags that choose a backend.
type Flags struct {
	Backend     string
	Activations string
	Threads     *cli.Threads
}

// Define defines --backend, --activations and --threads.
func Define(fs *pflag.FlagSet) *Flags {
	f := new(Flags)
	fs.StringVar(&f.Backend, "backend", Default(), "compute with `NAME`: cpu, mlx (Apple's MLX: see make mlx), or ref, the slow oracle")
	fs.StringVar(&f.Activations, "activations", "int8", "how the cpu backend sees the inputs of coded matrices: `TYPE` int8 or f32")
	f.Threads = cli.ThreadsFlag(fs)
	return f
}

// Default is the fastest backend that every machine of this build has.
func Default() string {
	if cpu.Built {
		return "cpu"
	}
	return "ref"
}

// Open opens the backend.
func (f *Flags) Open() (backend.Backend, error) {
	return Open(f.Backend, f.Activations, f.Threads.Count())
}

// OpenExact opens the backend with activations in f32, whatever the flag says.
func (f *Flags) OpenExact() (backend.Backend, error) {
	if err := checkActivations(f.Activations); err != nil {
		return nil, err
	}
	return Open(f.Backend, "f32", f.Threads.Count())
}

// Int8 reports whether the backend rounds activations to int8.
func (f *Flags) Int8() bool { return f.Backend == "cpu" && f.Activations == "int8" }

func checkActivations(name string) error {
	if name != "int8" && name != "f32" {
		return cli.Usage("--activations %s: want int8 or f32", name)
	}
	return nil
}

// Open opens the backend of a name with a number of threads. The backends ref
// and mlx know activations in f32 only, and mlx has threads of its own.
func Open(name, activations string, threads int) (backend.Backend, error) {
	if err := checkActivations(activations); err != nil {
		return nil, err
	}
	switch name {
	case "ref":
		return ref.Open(threads), nil
	case "cpu":
		b, err := cpu.Open(cpu.Options{Threads: threads, Activations: activations})
		if err != nil {
			return nil, cli.WithHint(cli.Usage("backend cpu: %w", err), "--backend ref computes without it")
		}
		return b, nil
	case "mlx":
		b, err := mlx.Open(mlx.Options{})
		if err != nil {
			return nil, cli.WithHint(cli.IO("backend mlx: %w", err), "%s", mlx.Remedy)
		}
		return b, nil
	}
	return nil, cli.Usage("--backend %s: want cpu, mlx or ref", name)
}
