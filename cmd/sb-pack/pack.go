package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// packFlags are the flags of the default verb.
type packFlags struct {
	model, output, stats, reuse *string
	compress, dryRun            *bool
	workRAM                     *cli.RAMSize
	threads                     *cli.Threads
}

func packVerb() cli.Verb {
	return cli.Verb{
		Args: "[PLAN...]",
		Long: "The store is a folder. It is built in STORE.partial and renamed when it is whole: an interrupted sb-pack leaves no half " +
			"store, and the same command goes on where it ended. A finished store is never changed: packing the same again says that it is " +
			"up to date, packing anything else over it is refused. A second sb-pack on one store is refused while the first runs.\n\n" +
			"Without PLAN, or for -, the plan is read from stdin and named \"default\"; others are named after their files. With several " +
			"plans the store holds what any of them needs, each record once.\n\n" +
			"With --reuse OLD, records that OLD has are taken from it instead of made again: whole files as hard links, which take no space, " +
			"others as copies. The store is the same, byte for byte, as without; OLD is checked on the way, stays as it is, and can be removed " +
			"afterwards. The line says how many bytes came from it.\n\n" +
			"The result is one line of JSON that sb-run reads. A disk that is too small is refused before work begins, one that fills up " +
			"meanwhile is exit code 4.",
		Example: "sb-pack --model models/tiny -o m.sb plan.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			f := packFlags{
				model:    fs.String("model", "", "take the weights of `MODEL`: a folder or a GGUF file"),
				output:   fs.StringP("output", "o", "", "make the folder `STORE`"),
				stats:    fs.String("stats", "", "the statistics `FILE` that sb-calibrate wrote (default: found in the cache folder by its digest)"),
				reuse:    fs.String("reuse", "", "take what `OLD`, another store of the model, already has"),
				compress: fs.Bool("compress", false, "store records that stay resident as zstd frames where that gains 3 %; a run that must stream them cannot use direct reads then"),
				dryRun:   fs.Bool("dry-run", false, "say what it would take: time, disk, memory; make nothing"),
				workRAM:  cli.WorkRAMFlag(fs),
				threads:  cli.ThreadsFlag(fs),
			}
			return func(ctx context.Context, env *cli.Env, args []string) error { return pack(ctx, env, &f, args) }
		},
	}
}

func pack(ctx context.Context, env *cli.Env, f *packFlags, args []string) error {
	const usage = "sb-pack --model MODEL -o STORE [PLAN...]"
	switch {
	case *f.model == "":
		return cli.WithHint(cli.Usage("--model is missing"), usage)
	case *f.output == "":
		return cli.WithHint(cli.Usage("-o STORE is missing"), usage)
	}
	output := filepath.Clean(*f.output)
	plans, err := readPlans(env, args)
	if err != nil {
		return err
	}
	m, err := model.Open(*f.model)
	if err != nil {
		return err
	}
	defer m.Close()
	texts, err := modelTexts(env, m, *f.model)
	if err != nil {
		return err
	}
	build, err := store.NewBuild(store.Spec{Profile: m.Profile(), Plans: plans, Texts: texts, Compress: *f.compress})
	if err != nil {
		return err
	}
	stats, err := openStats(*f.stats, build.Statistics())
	if err != nil {
		return err
	}
	defer stats.Close()
	stats.Use(cpu.GEMM)
	old, err := openReuse(*f.reuse)
	if err != nil {
		return err
	}
	need := takes(build, output, f.threads.Count(), old)
	if err := need.limitRAM(f.workRAM); err != nil {
		return err
	}
	if *f.dryRun {
		return need.report(ctx, env, m, stats, plans)
	}
	if err := need.checkDisk(); err != nil {
		return err
	}
	fingerprint, err := fingerprint(*f.model)
	if err != nil {
		return err
	}
	progress := env.Progress("packing", "bytes", build.Bytes())
	defer progress.Close()
	packed, err := build.Write(ctx, output, store.Options{
		Source: m, Stats: stats, Weights: m.WeightsSHA256, Fingerprint: fingerprint, Threads: f.threads.Count(), Reuse: old,
		Note: env.Notef,
		Progress: func(record string, bytes int64) {
			env.Debugf("packed %s", record)
			progress.Add(bytes)
		},
	})
	progress.Close()
	if err != nil {
		return remedy(env, err)
	}
	if packed.Synthetic {
		env.Notef("synthetic: the plan or the model is made up, its quality means nothing")
	}
	line, err := doc.WriteLine(packed)
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(line)
	return err
}

// openReuse opens the store that --reuse names, nil if it names none.
func openReuse(path string) (*store.Store, error) {
	if path == "" {
		return nil, nil
	}
	return store.Open(path)
}

// remedy says how to go on after an error of writing.
func remedy(env *cli.Env, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		env.Notef("the same command goes on where this one ended")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return cli.WithHint(err, "free some space; the same command goes on where this one ended")
	}
	return err
}

// limitRAM keeps to --work-ram, or without it to what is needed: the runtime
// would let garbage grow to as much again.
func (t *needs) limitRAM(flag *cli.RAMSize) error {
	if !flag.IsSet() {
		debug.SetMemoryLimit(t.memory)
		return nil
	}
	limit, err := workRAM(flag)
	if err != nil {
		return err
	}
	if t.memory > limit {
		return cli.WithHint(cli.No("packing needs %s of memory, --work-ram allows %s", cli.Size(t.memory), cli.Size(limit)),
			"fewer --threads need less; the largest op alone takes %s", cli.Size(t.build.MemoryBytes(0)))
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// readPlans reads the plans that the arguments name.
func readPlans(env *cli.Env, args []string) ([]store.NamedPlan, error) {
	if len(args) == 0 {
		args = []string{""}
	}
	var plans []store.NamedPlan
	for _, arg := range args {
		name, b, err := env.ReadDocument(arg)
		if err != nil {
			return nil, err
		}
		p, err := doc.Read[doc.Plan](name, b)
		if err != nil {
			return nil, err
		}
		plans = append(plans, store.NamedPlan{Name: planName(arg), Plan: p})
	}
	return plans, nil
}

// planName names a plan after its file.
func planName(arg string) string {
	if arg == "" || arg == "-" {
		return "default"
	}
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(arg), ".zst"), ".json")
}

// plural is "1 record", "2 records".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
