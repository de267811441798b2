package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/calib"
	"substrate/pkg/model"
)

func compareVerb() cli.Verb {
	return cli.Verb{
		Name:    "compare",
		Summary: "measures what encodings are worth on a model",
		Long: "All linear layers are stored at one level after another, embedding and head at the reference, and the KL divergence " +
			"from the reference is measured on text that nothing was fitted to. Every combination of --fit, --group and --levels is a " +
			"line of JSON: its bytes, its bits per weight with scales, and nats per token with their standard error by document.",
		Example: "sb-calibrate compare --model models/tiny --fit minmax,lsq,gptq --levels 4,3,2",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			path := fs.String("model", "", "measure the `MODEL`: a folder or a GGUF file")
			levels := fs.StringSlice("levels", []string{"4", "3", "2"}, "levels to compare: widths in `BITS`, a skeleton and its residual joined by +")
			fits := fs.StringSlice("fit", []string{"minmax", "lsq", "gptq"}, "how codes are made: `FIT` gptq, lsq or minmax")
			groups := fs.IntSlice("group", []int{64}, "inputs that share a scale: `N` 32, 64 or 128")
			scale := fs.String("scale", "bf16", "`TYPE` of scales: bf16 or f16")
			others := fs.StringArray("other", nil, "measure the linear layers of `CHECKPOINT` too, the same model as another quantizer rounded it; can be given several times")
			statsMax := defineStatsMax(fs)
			text := defineText(fs, 6000)
			testTokens := fs.Int("test-tokens", 4000, "measure on about `N` tokens")
			fs.StringArrayVar(&text.link, "test-text", nil, "measure on `FILE`, other text than --text (default with the built-in text: a part of its own)")
			b := backends.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				if *path == "" {
					return cli.WithHint(cli.Usage("--model is missing"), "sb-calibrate compare --model MODEL")
				}
				if len(text.files) > 0 && len(text.link) == 0 {
					return cli.Usage("--text without --test-text: what is fitted to a text is not measured on it")
				}
				var specs []calib.LevelSpec
				for _, fit := range *fits {
					for _, group := range *groups {
						specs = append(specs, calib.LevelSpec{Levels: *levels, Group: group, Scale: *scale, Fit: fit})
					}
				}
				return compare(ctx, env, *path, *others, specs, text, *testTokens, b, int64(*statsMax), *output)
			}
		},
	}
}

func compare(ctx context.Context, env *cli.Env, path string, others []string, specs []calib.LevelSpec, text *textFlags, testTokens int, flags *backends.Flags, statsMax int64, output string) error {
	encodings, levels, err := calib.Join(specs)
	if err != nil {
		return cli.Usage("--levels: %w", err)
	}
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	var other []calib.Other
	for _, path := range others {
		o, err := model.Open(path)
		if err != nil {
			return err
		}
		defer o.Close()
		other = append(other, calib.Other{Name: filepath.Base(path), Rows: o})
	}
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	fit, err := text.data(m, calib.PartFit)
	if err != nil {
		return err
	}
	text.tokens = testTokens
	test, err := text.of(m, text.link, calib.PartTest)
	if err != nil {
		return err
	}
	b, err := flags.OpenExact()
	if err != nil {
		return err
	}
	defer b.Close()
	progress := env.Progress("comparing", "layers", 0)
	defer progress.Close()
	results, err := calib.Compare(ctx, b, m, fit, test, other, calib.MeasureOptions{
		Encodings: encodings, Levels: levels, Threads: flags.Threads.Count(), StatsMax: statsMax, GEMM: cpu.GEMM,
		Progress: func(done, total int) { progress.Set(int64(done)) },
	})
	if err != nil {
		return err
	}
	progress.Close()
	var lines strings.Builder
	for i := range results {
		line, err := jsonio.MarshalLine(&results[i])
		if err != nil {
			return err
		}
		lines.Write(line)
	}
	if _, err := out.Write([]byte(lines.String())); err != nil {
		return err
	}
	return out.Commit()
}

// defineStatsMax defines --stats-max.
func defineStatsMax(fs *pflag.FlagSet) *cli.Size {
	size := cli.SizeFlag(fs, "stats-max", "statistics may take up to `SIZE` beside second moments: Gram matrices of inputs, for gptq; 0 is none (default 512M)")
	*size = 512 << 20
	return size
}
