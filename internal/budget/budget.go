// Package budget holds the flags by which sb-plan and sb-feasible learn what a
// plan may use.
package budget

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/mem"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

// Flags are the flags of a budget and of the policies of a plan.
type Flags struct {
	MaxRAM  *cli.RAMSize
	MaxDisk *cli.Size
	SSD     *cli.Size
	Quality float64
	Speed   float64
	Context int
	Machine string
	Options plan.Options
}

// Define defines them.
func Define(fs *pflag.FlagSet) *Flags {
	f := &Flags{MaxRAM: cli.MaxRAMFlag(fs)}
	fs.Float64Var(&f.Quality, "quality", 0, "largest KL divergence to accept, in `NATS` per token (default: any)")
	fs.Float64Var(&f.Speed, "tps", 0, "lowest speed to accept, in `N` tokens per second (default: half of what the best plan without streaming reaches, else half of what is possible; less if --quality needs it)")
	fs.IntVar(&f.Context, "context", 0, "room for `N` tokens of prompt and answer (default: 4096, or the model's limit)")
	f.MaxDisk = cli.SizeFlag(fs, "max-disk", "cap on the store: `SIZE` as 400G (default: none)")
	f.SSD = cli.SizeFlag(fs, "ssd-bw", "read no faster than `SIZE` per second, as 2G")
	fs.StringVar(&f.Machine, "machine", "", "measurements of the computer, `FILE` of sb-calibrate machine (default: conservative guesses)")
	fs.StringVar(&f.Options.Objective, "objective", "", "`NAME`: kl, the best quality in the budget, or cap, the least memory that meets --quality (default kl)")
	fs.StringVar(&f.Options.Strategy, "strategy", "", "`NAME`: optimal, static (optimal without streaming), greedy-rdo, or a control: uniform, layers-only, random, inverted (default optimal; greedy-rdo for --objective cap)")
	fs.Uint64Var(&f.Options.Seed, "seed", 0, "order of --strategy random: `N`")
	fs.IntVar(&f.Options.Classes, "classes", 0, "let the experts of a layer take `N` precisions (default: as the policy says, or 3)")
	fs.IntVar(&f.Options.MaxConcurrent, "max-concurrent", 0, "let `N` ops be escalated at once (default 6, or fewer where memory is short)")
	fs.StringVar(&f.Options.KVCacheType, "kv", "", "`TYPE` of the KV cache (default f16)")
	fs.IntVar(&f.Options.PrefillChunk, "prefill-chunk", 0, "read the prompt `N` tokens at a time (default 32)")
	return f
}

// ReadMachine reads the machine document that the flags name, nil if none.
func (f *Flags) ReadMachine(env *cli.Env) (*doc.Machine, error) {
	if f.Machine == "" {
		return nil, nil
	}
	name, b, err := env.ReadDocument(f.Machine)
	if err != nil {
		return nil, err
	}
	return doc.Read[doc.Machine](name, b)
}

// Budget is the budget on a machine, nil if it was not measured: a share of
// memory is then one of this computer's.
func (f *Flags) Budget(m *doc.Machine) (doc.Budget, error) {
	b := doc.Budget{
		MaxSSDCacheBytes:   int64(*f.MaxDisk),
		SSDBytesPerSec:     int64(*f.SSD),
		QualityLossCap:     f.Quality,
		TargetTokensPerSec: f.Speed,
		ContextTokens:      f.Context,
	}
	for _, n := range []struct {
		flag  string
		value float64
	}{{"quality", f.Quality}, {"tps", f.Speed}, {"context", float64(f.Context)}, {"max-concurrent", float64(f.Options.MaxConcurrent)}, {"prefill-chunk", float64(f.Options.PrefillChunk)}, {"classes", float64(f.Options.Classes)}} {
		if !(n.value >= 0) || n.value > doc.MaxInteger {
			return b, cli.Usage("--%s %v: want a finite number, not negative", n.flag, n.value)
		}
	}
	if !f.MaxRAM.IsSet() {
		return b, cli.WithHint(cli.Usage("--max-ram is missing: the cap on the memory of the process that runs the model"), "as in --max-ram 8G")
	}
	var err error
	b.MaxRAMBytes, err = f.maxRAM(m)
	return b, err
}

func (f *Flags) maxRAM(m *doc.Machine) (int64, error) {
	if n := f.MaxRAM.Bytes(0, 0); n > 0 {
		return n, nil
	}
	if m != nil && m.Memory.TotalBytes > 0 && m.Memory.AvailableBytes > 0 {
		return f.MaxRAM.Bytes(m.Memory.TotalBytes, m.Memory.AvailableBytes), nil
	}
	e, err := mem.ReadEnvironment(os.DirFS("/"))
	if err != nil {
		return 0, cli.WithHint(cli.Usage("--max-ram %s: this computer's memory is not known: %w", f.MaxRAM, err), "give a size, as in --max-ram 8G")
	}
	return f.MaxRAM.Bytes(e.Total, e.Auto(0)), nil
}

// Explain turns an error of the planner into one with the numbers as people
// write them, and the flag that helps.
func Explain(err error) error {
	var e *plan.InfeasibleError
	if !errors.As(err, &e) {
		return err
	}
	b := &e.Budget
	ram := cli.Size(b.MaxRAMBytes)
	var what string
	switch e.Axis {
	case doc.AxisMemory:
		what = fmt.Sprintf("the model does not fit --max-ram %v", ram)
	case doc.AxisLatency:
		what = fmt.Sprintf("--tps %g is out of reach within --max-ram %v", b.TargetTokensPerSec, ram)
	case doc.AxisQuality:
		what = fmt.Sprintf("--quality %g is out of reach within --max-ram %v", b.QualityLossCap, ram)
	default:
		what = fmt.Sprintf("the store does not fit --max-disk %v", cli.Size(b.MaxSSDCacheBytes))
	}
	if e.SmallestRAM == 0 {
		return cli.WithHint(cli.No("infeasible: %s, and more memory does not help", what), "sb-feasible says what would")
	}
	err = cli.No("infeasible: %s: needs at least %v", what, cli.Size(e.SmallestRAM))
	if l := e.LargestFixed(); l.Name == doc.LedgerKV {
		err = cli.WithHint(err, "a shorter --context than %d needs less: its KV cache takes %v", b.ContextTokens, cli.Size(l.Bytes))
	}
	return cli.WithHint(err, "--max-ram %s", plan.FlagSize(e.SmallestRAM))
}
