package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/calib"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
)

func measureVerb() cli.Verb {
	return cli.Verb{
		Name:    "measure",
		Summary: "measures which op loses how much quality at which precision",
		Long: "Every op of the model is stored at every level, and the KL divergence of the model's next-token distributions " +
			"from the reference is measured on text: nats per token, teacher-forced, everything else at the reference. The experts " +
			"of a layer are measured together and share the loss by what each adds to their output. On other text (--link-text) routing " +
			"is watched, and whole plans are measured that say how losses add up.\n\n" +
			"One layer of the model is in memory at a time. Many ops and levels go through the model together, as many as --work-ram " +
			"and --spill-max have room for; an interrupted measurement goes on from the last batch with the same result.\n\n" +
			"Codes are fitted to other tokens of the text than the loss is measured on. What is known of every matrix's inputs (second " +
			"moments, and for gptq Gram matrices up to --stats-max) goes to a statistics file, which sb-pack needs to make the same codes: " +
			"in the user's cache folder under its sha256, or to --stats.",
		Example: "sb-calibrate measure --model models/tiny -o table.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			path := fs.String("model", "", "measure the `MODEL`: a folder or a GGUF file")
			levels := fs.String("levels", "2,3,4,6,8,3+2,4+3", "levels to measure: widths in `BITS`, a skeleton and its residual joined by +")
			spec := calib.LevelSpec{}
			fs.IntVar(&spec.Group, "group", 64, "inputs that share a scale: `N` 32, 64 or 128")
			fs.StringVar(&spec.Scale, "scale", "bf16", "`TYPE` of scales: bf16 or f16")
			fs.StringVar(&spec.Fit, "fit", "gptq", "how codes are made: `FIT` gptq, lsq or minmax")
			statsMax := defineStatsMax(fs)
			stats := cli.PathFlag(fs, "stats", "", "write the statistics to `FILE` instead of the cache folder")
			text := defineText(fs, defaultTokens)
			text.defineLink(fs)
			fs.IntVar(&text.codes, "codes-tokens", 6000, "fit codes to about `N` more tokens of --text; 0: to the tokens that are scored")
			fast := fs.Bool("fast", false, "score 1024 tokens")
			thorough := fs.Bool("thorough", false, "score 8192 tokens")
			memory := workMemory{ram: cli.WorkRAMFlag(fs), spill: cli.SizeFlag(fs, "spill-max", "put up to `SIZE` of intermediate results into a temporary file")}
			b := backends.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				if *path == "" {
					return cli.WithHint(cli.Usage("--model is missing"), "sb-calibrate measure --model MODEL")
				}
				if *fast && *thorough {
					return cli.Usage("--fast and --thorough: want one of them")
				}
				if err := text.effort(*fast, *thorough, fs.Changed("tokens")); err != nil {
					return err
				}
				spec.Levels = strings.Split(*levels, ",")
				if spec.Fit != "gptq" {
					*statsMax = 0
				}
				return measure(ctx, env, *path, spec, text, b, &memory, int64(*statsMax), *stats, *output)
			}
		},
	}
}

func measure(ctx context.Context, env *cli.Env, path string, spec calib.LevelSpec, text *textFlags, flags *backends.Flags, memory *workMemory, statsMax int64, statsPath, output string) error {
	encodings, levels, err := spec.Expand()
	if err != nil {
		return cli.Usage("--levels: %w", err)
	}
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := env.Create(output)
	if err != nil {
		return err
	}
	defer out.Abort()
	statsOut, err := createStats(env, statsPath)
	if err != nil {
		return err
	}
	defer statsOut.abort()
	data, codes, err := text.fitData(m)
	if err != nil {
		return err
	}
	link, err := text.linkData(m)
	if err != nil {
		return err
	}
	weights, err := m.WeightsSHA256(ctx)
	if err != nil {
		return err
	}
	// The reference and the levels are computed in float32, so that a table
	// holds what the codes lose, and apart from it what int8 activations add.
	b, err := flags.OpenExact()
	if err != nil {
		return err
	}
	defer b.Close()
	var int8 backend.Backend
	if flags.Int8() {
		if int8, err = flags.Open(); err != nil {
			return err
		}
		defer int8.Close()
	}
	progress := env.Progress("measuring", "steps", 0)
	defer progress.Close()
	opt := calib.MeasureOptions{
		Encodings: encodings, Levels: levels, Threads: flags.Threads.Count(), Codes: codes, Link: link, Int8: int8, StatsMax: statsMax, GEMM: cpu.GEMM,
		Progress: func(done, total int) { progress.Set(int64(done)) },
	}
	if opt.WorkRAM, err = memory.bytes(); err != nil {
		return err
	}
	opt.SpillMax = int64(*memory.spill)
	journal, err := openJournal(env, weights, b, &opt, data)
	if err != nil {
		return err
	}
	if journal != nil {
		opt.Journal = journal
		defer journal.Close()
	}
	table, stats, err := calib.Measure(ctx, b, m, data, opt)
	if short, ok := errors.AsType[*calib.WorkRAMError](err); ok {
		return cli.WithHint(err, "--work-ram %d, fewer --tokens, or --spill-max", short.Need)
	}
	if err != nil {
		return err
	}
	progress.Close()
	table.WeightsSHA = weights
	if table.Statistics, err = statsOut.save(stats); err != nil {
		return err
	}
	bytes, err := doc.Write(table)
	if err != nil {
		return err
	}
	if err := out.Finish(bytes); err != nil || journal == nil {
		return err
	}
	return journal.Remove()
}

// defaultTokens are scored unless the user says.
const defaultTokens = 2048

// effort sets the number of tokens, unless the user did.
func (f *textFlags) effort(fast, thorough, given bool) error {
	switch {
	case given && (fast || thorough):
		return cli.Usage("--tokens with --fast or --thorough: they are numbers of tokens, too")
	case fast:
		f.tokens = defaultTokens / 2
	case thorough:
		f.tokens = 4 * defaultTokens
	}
	return nil
}

// workMemory is what the tool may take.
type workMemory struct {
	ram   *cli.RAMSize
	spill *cli.Size
}

// bytes is --work-ram, 0 if it is not given.
func (w *workMemory) bytes() (int64, error) {
	if !w.ram.IsSet() {
		return 0, nil
	}
	e, err := mem.ReadEnvironment(os.DirFS("/"))
	if err != nil {
		return 0, err
	}
	return w.ram.Bytes(e.Total, e.Auto(0)), nil
}

// openJournal opens the journal of this very measurement in the cache folder;
// nil where there is none, and an interrupted measurement begins anew.
func openJournal(env *cli.Env, weights string, b backend.Backend, opt *calib.MeasureOptions, data *calib.Data) (*calib.FileJournal, error) {
	key := struct {
		Weights, Backend, Path string
		Data                   []doc.DataPart
		Encodings              []doc.Encoding
		Levels                 []doc.Level
		StatsMax               int64
	}{Weights: weights, Backend: b.Name(), Path: b.Path(), Data: []doc.DataPart{data.Part}, Encodings: opt.Encodings, Levels: opt.Levels, StatsMax: opt.StatsMax}
	if opt.Codes != nil {
		key.Data = append(key.Data, opt.Codes.Part)
	}
	if opt.Link != nil {
		key.Data = append(key.Data, opt.Link.Part)
	}
	text, err := jsonio.Marshal(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, nil
	}
	dir = filepath.Join(dir, "substrate", "measuring")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	digest := hex.EncodeToString(sum[:])
	j, err := calib.OpenJournal(filepath.Join(dir, digest[:16]+".jsonl"), digest)
	if err == nil && j.Found() > 0 {
		env.Notef("going on from an interrupted measurement: %d results are there", j.Found())
	}
	return j, err
}

// statsOutput is where the statistics go: a file, or the folder where sb-pack
// looks for them.
type statsOutput struct {
	file *cli.Output // nil: the folder
	dir  string
}

// createStats finds mistakes before the work whose result they would cost.
func createStats(env *cli.Env, path string) (*statsOutput, error) {
	if path != "" {
		file, err := env.Create(path)
		return &statsOutput{file: file}, err
	}
	const hint = "--stats FILE says where the statistics go"
	dir, err := quant.StatsDir()
	if err != nil {
		return nil, cli.WithHint(cli.Usage("no cache folder: %w", err), hint)
	}
	return &statsOutput{dir: dir}, cli.WithHint(os.MkdirAll(dir, 0o777), hint)
}

// save writes the statistics and returns their digest.
func (o *statsOutput) save(stats *quant.Stats) (digest string, err error) {
	if o.file == nil {
		path, err := stats.Save(o.dir)
		return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), err
	}
	hash := sha256.New()
	if err := stats.Write(io.MultiWriter(o.file, hash)); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), o.file.Commit()
}

func (o *statsOutput) abort() {
	if o.file != nil {
		o.file.Abort()
	}
}
