// Package budget holds what sb-plan and sb-feasible have in common: the flags
// by which they learn what a plan may use, and how they open what they plan
// for.
package budget

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/mem"
	"substrate/pkg/doc"
	"substrate/pkg/plan"
)

// Flags are the flags of a budget and of the policies of a plan.
type Flags struct {
	set     *pflag.FlagSet
	maxRAM  *cli.RAMSize
	ram     int64 // in its place where it is not given; 0: it must be
	maxDisk *cli.Size
	ssd     *cli.Size
	quality float64
	speed   float64
	context int
	machine *string
	policy  *string
	options plan.Options
}

// Define defines them.
func Define(fs *pflag.FlagSet) *Flags {
	f := &Flags{set: fs, maxRAM: cli.MaxRAMFlag(fs)}
	fs.Float64Var(&f.quality, "quality", 0, "largest KL divergence to accept, in `NATS` per token (default: any)")
	fs.Float64Var(&f.speed, "tps", 0, "lowest speed to accept, in `N` tokens per second (default: half of what the best plan without streaming reaches, else half of what is possible; less if --quality needs it)")
	fs.IntVar(&f.context, "context", 0, "room for `N` tokens of prompt and answer (default: 4096, or the model's limit)")
	f.maxDisk = cli.SizeFlag(fs, "max-disk", "cap on the store: `SIZE` as 400G (default: none)")
	f.ssd = cli.SizeFlag(fs, "ssd-bw", "read no faster than `SIZE` per second, as 2G")
	f.machine = cli.PathFlag(fs, "machine", "", "measurements of the computer, `FILE` of sb-calibrate machine (default: conservative guesses)")
	f.policy = cli.PathFlag(fs, "policy", "", "precisions to keep whatever the budget is, `FILE` of format sb.policy (default: floors for a head and an embedding that nobody measured)")
	fs.StringVar(&f.options.Objective, "objective", "", "`NAME`: kl, the best quality in the budget, or cap, the least memory that meets --quality (default kl)")
	fs.StringVar(&f.options.Strategy, "strategy", "", "`NAME`: optimal, static (optimal without streaming), greedy-rdo, or a control: uniform, layers-only, random, inverted (default optimal; greedy-rdo for --objective cap)")
	fs.Uint64Var(&f.options.Seed, "seed", 0, "order of --strategy random: `N`")
	fs.IntVar(&f.options.Classes, "classes", 0, "let the experts of a layer take `N` precisions (default: as the policy says, or 3)")
	fs.IntVar(&f.options.MaxConcurrent, "max-concurrent", 0, "let `N` ops be escalated at once (default 6, or fewer where memory is short)")
	fs.StringVar(&f.options.KVCacheType, "kv", "", "`TYPE` of the KV cache (default f16)")
	fs.IntVar(&f.options.PrefillChunk, "prefill-chunk", 0, "read the prompt `N` tokens at a time (default 32)")
	return f
}

// WithoutMaxRAM lets --max-ram be left out: some bytes take its place.
func (f *Flags) WithoutMaxRAM(bytes int64) { f.ram = bytes }

// slowest is the least speed that makes sense: a token in twelve days.
const slowest = 1e-6

// check refuses numbers that mean nothing. A flag that was given as 0 is one
// of them: left out, it stands for a default, which 0 would not be taken for.
func (f *Flags) check() error {
	for _, n := range []struct {
		flag  string
		value float64
		least float64 // that may be given
		ask   string  // what 0 may have been meant for
	}{
		{"quality", f.quality, 0, "any quality"},
		{"tps", f.speed, slowest, "any speed"},
		{"context", float64(f.context), 1, "the default"},
		{"max-disk", float64(*f.maxDisk), 1, "any size"},
		{"ssd-bw", float64(*f.ssd), 1, "what the disk gives"},
		{"max-concurrent", float64(f.options.MaxConcurrent), 1, "the default"},
		{"prefill-chunk", float64(f.options.PrefillChunk), 1, "the default"},
		{"classes", float64(f.options.Classes), 1, "the default"},
	} {
		given := f.set.Lookup(n.flag).Value
		switch {
		case !f.set.Changed(n.flag):
		case n.value == 0:
			return cli.WithHint(cli.Usage("--%s 0 is out of reach", n.flag), "leave --%s out for %s", n.flag, n.ask)
		case !(n.value >= n.least):
			return cli.Usage("--%s %s: want at least %g", n.flag, given, n.least)
		case n.value > doc.MaxInteger:
			return cli.Usage("--%s %s: want at most 2^53", n.flag, given)
		}
	}
	return nil
}

// Budget is the budget on a machine, nil if it was not measured: a share of
// memory is then one of this computer's.
func (f *Flags) Budget(m *doc.Machine) (doc.Budget, error) {
	b := doc.Budget{
		MaxSSDCacheBytes:   int64(*f.maxDisk),
		SSDBytesPerSec:     int64(*f.ssd),
		QualityLossCap:     f.quality,
		TargetTokensPerSec: f.speed,
		ContextTokens:      f.context,
	}
	if err := f.check(); err != nil {
		return b, err
	}
	if !f.maxRAM.IsSet() && f.ram > 0 {
		b.MaxRAMBytes = f.ram
		return b, nil
	}
	if !f.maxRAM.IsSet() {
		return b, cli.WithHint(cli.Usage("--max-ram is missing: the cap on the memory of the process that runs the model"), "as in --max-ram 8G")
	}
	var err error
	b.MaxRAMBytes, err = f.maxRAMBytes(m)
	if err == nil && b.MaxRAMBytes > doc.MaxInteger {
		err = cli.Usage("--max-ram %v: want at most 2^53 bytes", f.maxRAM)
	}
	return b, err
}

func (f *Flags) maxRAMBytes(m *doc.Machine) (int64, error) {
	if n := f.maxRAM.Bytes(0, 0); n > 0 {
		return n, nil
	}
	if m != nil && m.Memory.TotalBytes > 0 && m.Memory.AvailableBytes > 0 {
		return f.maxRAM.Bytes(m.Memory.TotalBytes, m.Memory.AvailableBytes), nil
	}
	e, err := mem.ReadEnvironment(os.DirFS("/"))
	if err != nil {
		return 0, cli.WithHint(cli.Usage("--max-ram %s: this computer's memory is not known: %w", f.maxRAM, err), "give a size, as in --max-ram 8G")
	}
	return f.maxRAM.Bytes(e.Total, e.Auto(0)), nil
}

// Command is how to make a plan with a budget and the other flags as given, of
// the document of some name, "" for stdin.
func (f *Flags) Command(b doc.Budget, name string) string {
	words := append([]string{"sb-plan"}, plan.BudgetFlags(b)...)
	f.set.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "machine", "policy", "objective", "strategy", "seed", "classes", "max-concurrent", "kv", "prefill-chunk":
			words = append(words, "--"+flag.Name, quote(flag.Value.String()))
		}
	})
	if name != "" {
		words = append(words, quote(name))
	}
	return strings.Join(words, " ")
}

// quote makes a word that a shell reads as it is.
func quote(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%=") == "" && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
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
