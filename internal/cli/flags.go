package cli

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// The functions below define the flags that several tools have, so that a flag has one name, one meaning and one text.

// OutputFlag defines -o, the file that a document goes to: see [Env.WriteDocument].
func OutputFlag(fs *pflag.FlagSet) *string {
	return PathFlag(fs, "output", "o", "write to `FILE` instead of stdout, compressed if it is named *.zst")
}

// PathFlag defines a flag that names a file, "" if it is not given. Given as "" it is an error, most likely of a script
// whose variable is not set.
func PathFlag(fs *pflag.FlagSet, name, shorthand, usage string) *string {
	p := new(path)
	fs.VarP(p, name, shorthand, usage)
	return (*string)(p)
}

type path string

func (p *path) Set(text string) error {
	if text == "" {
		return errors.New("the name of a file is expected")
	}
	*p = path(text)
	return nil
}

func (p *path) Type() string   { return "FILE" }
func (p *path) String() string { return string(*p) }

// JSONFlag defines --json.
func JSONFlag(fs *pflag.FlagSet) *bool {
	return fs.Bool("json", false, "print JSON instead of text")
}

// MaxRAMFlag defines --max-ram, the cap on the memory of the whole process that runs the model.
func MaxRAMFlag(fs *pflag.FlagSet) *RAMSize {
	r := new(RAMSize)
	fs.Var(r, "max-ram", "cap on the memory of the process that runs the model: `SIZE` as 36G, 75%, auto")
	return r
}

// WorkRAMFlag defines --work-ram, the memory that the tool itself may use.
func WorkRAMFlag(fs *pflag.FlagSet) *RAMSize {
	r := new(RAMSize)
	fs.Var(r, "work-ram", "memory that this tool itself may use: `SIZE` as 4G, 50%, auto")
	return r
}

// SizeFlag defines a flag whose value is a number of bytes, 0 unless given.
func SizeFlag(fs *pflag.FlagSet, name, usage string) *Size {
	s := new(Size)
	fs.Var(s, name, usage)
	return s
}

// SeedFlag defines --seed.
func SeedFlag(fs *pflag.FlagSet) *uint64 {
	return fs.Uint64("seed", 0, "seed everything random with `N`")
}

// ThreadsFlag defines --threads: see [Threads.Count].
func ThreadsFlag(fs *pflag.FlagSet) *Threads {
	t := new(Threads)
	fs.Var(t, "threads", "use `N` threads (default: as many as the machine and the process's CPU quota allow)")
	return t
}

// Threads is a number of threads as a flag.
type Threads int

// maxThreads is far above every machine; it catches slips.
const maxThreads = 4096

// Count is the number given, else GOMAXPROCS, which knows of CPU affinity and of a cgroup's quota.
func (t Threads) Count() int {
	if t == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return int(t)
}

func (t *Threads) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxThreads {
		return fmt.Errorf("a number from 1 to %d is expected", maxThreads)
	}
	*t = Threads(n)
	return nil
}

func (t *Threads) Type() string { return "N" }

func (t *Threads) String() string {
	if *t == 0 {
		return ""
	}
	return strconv.Itoa(int(*t))
}

// TimeLimitFlag defines --time-limit, 0 if not given.
func TimeLimitFlag(fs *pflag.FlagSet) *Duration {
	d := new(Duration)
	fs.Var(d, "time-limit", "stop after this `TIME`, as 20m or 1h30m")
	return d
}

// Duration is a span of time above zero as a flag, in Go's notation: 90s, 20m, 1h30m.
type Duration time.Duration

func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("a time as 90s, 20m or 1h30m is expected")
	}
	if v <= 0 {
		return errors.New("a time above 0 is expected")
	}
	*d = Duration(v)
	return nil
}

func (d *Duration) Type() string { return "TIME" }

func (d *Duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}
