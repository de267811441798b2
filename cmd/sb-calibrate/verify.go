package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/calib"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/model"
	"substrate/pkg/quant"
	"substrate/pkg/run"
	"substrate/pkg/store"
)

type verifyOptions struct {
	model, plan, mode, tier, stats, kv string
	controls                           string
	text                               *textFlags
	backend                            *backends.Flags
}

func verifyVerb() cli.Verb {
	return cli.Verb{
		Name:    "verify",
		Args:    "[PLAN|STORE]",
		Summary: "measures the quality of a whole plan or store",
		Long: "The model is run as the plan or store has it, with the kernels that will run it, and its next-token distributions " +
			"are compared with the reference's on text that the plan was not made from. Exit code 1 says that the measured KL " +
			"is outside the band that the plan predicts, widened by two standard errors.\n\n" +
			"With --mode static every op is at one tier. With scheduled or exact the text goes through sb-run's own loop, token by " +
			"token, so that slots hold what they would hold in a generation of the same text; a plan is packed in a temporary folder first.",
		Example: "sb-calibrate verify --model models/tiny plan.json --uniform 3,4 | jq .quality.kl",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			o := &verifyOptions{}
			fs.StringVar(&o.model, "model", "", "the reference: `MODEL`, a folder or a GGUF file")
			fs.StringVar(&o.plan, "plan", "", "verify the plan `NAME` of a store (default: its first)")
			fs.StringVar(&o.mode, "mode", "static", "measure in `MODE` static, scheduled or exact")
			fs.StringVar(&o.tier, "tier", "default", "with --mode static, measure every op at its `TIER` default or top")
			fs.StringVar(&o.controls, "uniform", "", "measure uniform encodings of these widths in `BITS` too: 2,3,4")
			fs.StringVar(&o.stats, "stats", "", "the statistics `FILE` of the calibration, if it is not in the cache folder")
			fs.StringVar(&o.kv, "kv", "", "KV cache `TYPE`, f32 or f16 (default: the plan's)")
			o.text = defineText(fs, 4096)
			o.backend = backends.Define(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				if o.model == "" {
					return cli.WithHint(cli.Usage("--model is missing"), "sb-calibrate verify --model MODEL PLAN")
				}
				out, err := env.Create(*output)
				if err != nil {
					return err
				}
				defer out.Abort()
				v, err := verify(ctx, env, cli.Arg(args, 0), o)
				if err != nil {
					return err
				}
				b, err := doc.Write(v)
				if err != nil {
					return err
				}
				if err := out.Finish(b); err != nil {
					return err
				}
				if !v.InBand {
					return cli.No("measured KL %.4g +- %.2g is outside the predicted band %.4g to %.4g",
						v.Quality.KL, v.Quality.KLError, v.Predicted.KLLow, v.Predicted.KLHigh)
				}
				return nil
			}
		},
	}
}

func verify(ctx context.Context, env *cli.Env, target string, o *verifyOptions) (*doc.Verify, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := model.Open(o.model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if o.kv != "" {
		if _, err := footprint.KVBytes(m.Profile(), o.kv, 1); err != nil {
			return nil, cli.Usage("--kv: %w", err)
		}
	}
	subject, err := openSubject(ctx, env, target, m, o)
	if err != nil {
		return nil, err
	}
	defer subject.close()
	data, err := o.text.data(m, calib.PartTest)
	if err != nil {
		return nil, err
	}
	exact, err := o.backend.OpenExact()
	if err != nil {
		return nil, err
	}
	defer exact.Close()
	b, err := o.backend.Open()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	controls, err := o.uniform(subject.plan)
	if err != nil {
		return nil, err
	}
	p := m.Profile()
	kv := cmp.Or(o.kv, subject.plan.KVCacheType)
	v := &doc.Verify{
		Format: doc.FormatVerify, Synthetic: p.Synthetic || subject.plan.Synthetic, ModelID: p.ModelID, Reference: p.Reference,
		Target: subject.kind, Mode: o.mode, Tier: o.tier, Backend: b.Name(), Activations: o.backend.Activations, KVCacheType: kv,
		Data: data.Part, Documents: len(data.Documents), InBand: true,
	}
	progress := env.Progress("verifying", "sequences", 0)
	defer progress.Close()
	opt := calib.VerifyOptions{
		KVType: kv, Threads: o.backend.Threads.Count(), Controls: controls, Stats: subject.stats,
		Progress: func(done, total int) { progress.Set(int64(done)) },
	}
	var r *calib.Verification
	if o.mode == modeStatic {
		r, err = calib.Verify(ctx, exact, b, m, subject.records, data, opt)
	} else {
		r, err = o.run(ctx, v, subject, m, exact, b, data, opt)
	}
	if err != nil {
		return nil, err
	}
	v.Quality, v.Controls = r.Quality, r.Controls
	if o.tier == "default" {
		predicted := subject.plan.Predicted
		v.Predicted = &predicted
		slack := 2 * r.Quality.KLError
		v.InBand = r.Quality.KL >= predicted.KLLow-slack && r.Quality.KL <= predicted.KLHigh+slack
	}
	if kl, ok := calib.InterpolateUniform(r.Controls, r.Quality.Bytes); ok {
		v.UniformKL = &kl
	}
	return v, nil
}

// modeStatic has every op at one tier; the other modes are sb-run's.
const modeStatic = "static"

// check completes and checks the flags.
func (o *verifyOptions) check() error {
	if o.tier != "default" && o.tier != "top" {
		return cli.Usage("--tier %s: want default or top", o.tier)
	}
	switch o.mode {
	case modeStatic:
	case "scheduled", "exact":
		if o.tier == "top" {
			return cli.Usage("--tier top is for --mode static: --mode exact runs every op at its top tier")
		}
		if o.mode == "exact" {
			o.tier = "top"
		}
	default:
		return cli.Usage("--mode %s: want static, scheduled or exact", o.mode)
	}
	return nil
}

// run verifies a store as sb-run would run it.
func (o *verifyOptions) run(ctx context.Context, v *doc.Verify, s *subject, m *model.Model, exact, b backend.Backend, data *calib.Data, opt calib.VerifyOptions) (*calib.Verification, error) {
	mode, err := run.ParseMode(o.mode)
	if err != nil {
		return nil, err
	}
	own, err := o.backend.Open()
	if err != nil {
		return nil, err
	}
	r, err := run.OpenPlanned(ctx, s.store, o.plan, own, run.Options{Mode: mode, Context: data.Longest(), KVType: v.KVCacheType, Threads: opt.Threads})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	measured, err := calib.VerifyRun(ctx, exact, b, m, r, tierBytes(s.plan, mode == run.Exact), data, opt)
	if err != nil {
		return nil, err
	}
	v.Run = &doc.VerifyRun{ReadBytesPerToken: measured.ReadBytesPerToken, BitsServed: measured.BitsServed}
	for _, l := range r.Ledger() {
		if l.Name == doc.LedgerWeights || l.Name == doc.LedgerSlots || l.Name == doc.LedgerRing {
			v.Run.ResidentBytes += l.Bytes
		}
	}
	return measured, nil
}

// tierBytes is the size of the records of every op's default or top tier.
func tierBytes(p *doc.Plan, top bool) (bytes int64) {
	records := make(map[string]int64, len(p.Catalog))
	for i := range p.Catalog {
		records[p.Catalog[i].ID] = p.Catalog[i].RAMBytes
	}
	for i := range p.OpBundles {
		for _, id := range tierOf(&p.OpBundles[i], top).Requires {
			bytes += records[id]
		}
	}
	return bytes
}

// tierOf is an op's default or top tier.
func tierOf(b *doc.OpBundle, top bool) *doc.Tier {
	if top {
		return &b.Tiers[len(b.Tiers)-1]
	}
	return &b.Tiers[0]
}

// uniform returns the encodings of --uniform, in the plan's group size, scale
// type and fit.
func (o *verifyOptions) uniform(p *doc.Plan) ([]doc.Encoding, error) {
	if o.controls == "" {
		return nil, nil
	}
	spec := calib.LevelSpec{Levels: strings.Split(o.controls, ","), Group: 64, Scale: "bf16", Fit: "gptq"}
	for i := range p.Encodings {
		if e := &p.Encodings[i]; e.Bits < 16 {
			spec.Group, spec.Scale, spec.Fit = e.Group, e.Scale, e.Fit
			break
		}
	}
	encodings, levels, err := spec.Expand()
	if err != nil {
		return nil, cli.Usage("--uniform: %w", err)
	}
	for i := range levels {
		if len(levels[i].Encodings) > 1 {
			return nil, cli.Usage("--uniform: %s is not one encoding", levels[i].ID)
		}
	}
	return encodings, nil
}

// subject is what is verified.
type subject struct {
	kind    string // "plan" or "store"
	plan    *doc.Plan
	stats   *quant.Stats
	records calib.Records
	store   *store.Store // nil for a plan in mode static
	close   func()
}

// openSubject opens a plan, whose records are made as sb-pack would make
// them, or a store.
func openSubject(ctx context.Context, env *cli.Env, target string, m *model.Model, o *verifyOptions) (*subject, error) {
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		return openStore(target, m, o)
	}
	name, b, err := env.ReadDocument(target)
	if err != nil {
		return nil, err
	}
	plan, err := doc.Read[doc.Plan](name, b)
	if err != nil {
		return nil, err
	}
	if err := checkModel(plan.HeaderSHA256, m); err != nil {
		return nil, err
	}
	stats, err := findStats(plan.Statistics, o.stats)
	if err != nil {
		return nil, err
	}
	s := &subject{kind: "plan", plan: plan, stats: stats, close: func() { stats.Close() }}
	if o.mode != modeStatic {
		return s, s.pack(ctx, m, o)
	}
	s.records, err = calib.PlanRecords(m, plan, o.tier == "top", stats, o.backend.Threads.Count())
	return s, err
}

// checkModel compares the model that a document was made for with m.
func checkModel(header string, m *model.Model) error {
	if got := m.Profile().HeaderSHA256; header != "" && header != got {
		return cli.No("the plan was made for a model with header digest %.12s, this one has %.12s", header, got)
	}
	return nil
}

// findStats opens the statistics that a plan's codes depend on.
func findStats(digest, path string) (*quant.Stats, error) {
	if path != "" {
		stats, err := quant.OpenStats(path)
		stats.Use(cpu.GEMM)
		if err == nil && digest != "" && stats.SHA256() != digest {
			err = cli.No("%s has sha256 %.12s, the plan wants %.12s", path, stats.SHA256(), digest)
		}
		return stats, err
	}
	if digest == "" {
		return nil, nil
	}
	dir, err := quant.StatsDir()
	if err != nil {
		return nil, cli.WithHint(cli.Usage("no cache folder to look for statistics in: %w", err), "--stats FILE names the file")
	}
	stats, err := quant.FindStats(dir, digest)
	stats.Use(cpu.GEMM)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("statistics of the plan: %w", err), "sb-calibrate measure writes them; --stats FILE names them elsewhere")
	}
	return stats, nil
}
