package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/internal/mem"
	"substrate/pkg/doc"
	"substrate/pkg/run"
	"substrate/pkg/store"
	"substrate/pkg/stream"
	"substrate/pkg/tokenizer"
	"substrate/pkg/trace"
)

// runFlags are the flags of the default verb.
type runFlags struct {
	maxRAM      *cli.RAMSize
	backend     *backends.Flags
	sampling    samplingFlags
	chat        chatFlags
	prompt      string
	mode        string
	context     int
	maxTokens   int
	kv          string
	plan        string
	forced      *string
	batch       *string
	verifier    *string
	trace       *string
	traceVolume string
	raw         bool
	json        *bool
}

func runVerb() cli.Verb {
	return cli.Verb{
		Args: "STORE",
		Long: "The prompt is -p or stdin. STORE is the folder that sb-pack made; - reads the line that sb-pack prints from stdin, so that a " +
			"whole pipeline is one pipe, and the prompt is -p then.\n\n" +
			"Everything that the run will hold is added up before it starts: if that does not fit the cap, or the cap does not fit the " +
			"machine, the run is refused with the smallest budget that works. At the end the measured peak is compared with the cap.\n\n" +
			"Mode scheduled runs each op at the plan's default tier; its output is the same whatever the disk does. Mode exact runs each op " +
			"at the plan's top tier, which is not the precision of the source. Mode fastest is scheduled with deadlines: records that are late " +
			"have the plan's fallbacks, and drift from the plan's forecast brings ops back to their default tier; its output may vary.\n\n" +
			"--batch answers requests, JSON lines such as {\"format\":\"sb.request/1\",\"id\":\"1\",\"prompt\":\"...\"}, each from a clean start, and prints a " +
			"line for each. SIGTERM ends it after the answer at hand.",
		Example: "sb-run m.sb --max-ram 64M -p \"The capital of France is\"\necho \"Once upon a time\" | sb-run m.sb -n 100 --trace t.jsonl",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			f := &runFlags{maxRAM: cli.MaxRAMFlag(fs)}
			fs.StringVarP(&f.prompt, "prompt", "p", "", "continue this `TEXT` (default: stdin)")
			fs.IntVarP(&f.maxTokens, "max-tokens", "n", 256, "stop after `N` tokens; 0: when the context is full")
			fs.StringVar(&f.mode, "mode", "scheduled", "`MODE` scheduled, exact or fastest")
			fs.IntVar(&f.context, "context", 0, "room for `N` tokens, prompt and answer (default: the plan's)")
			fs.StringVar(&f.kv, "kv", "", "`TYPE` of the KV cache, f32 or f16 (default: the plan's)")
			f.sampling.define(fs)
			f.chat.define(fs)
			fs.StringVar(&f.plan, "plan", "", "the `NAME` of a plan in the store (default: the largest that fits --max-ram, or the first)")
			fs.BoolVar(&f.raw, "raw", false, "take the texts of special tokens in the prompt for those tokens, and add none")
			f.forced = cli.PathFlag(fs, "forced", "", "decode the text of `FILE` whatever the model would say, and stop: for measurements")
			f.batch = cli.PathFlag(fs, "batch", "", "answer the requests of `FILE`, one a line; - is stdin")
			f.verifier = cli.PathFlag(fs, "verifier", "", "raise ops to higher tiers where the probes or the script of `FILE` find disagreement")
			f.backend = backends.Define(fs)
			f.trace = cli.PathFlag(fs, "trace", "", "write a trace to `FILE`, one JSON line per event")
			fs.StringVar(&f.traceVolume, "trace-volume", "full", "how much the trace tells: `VOLUME` token or full")
			f.json = cli.JSONFlag(fs)
			return func(ctx context.Context, env *cli.Env, args []string) error {
				if f.prompt == "" && fs.Changed("prompt") {
					return cli.Usage("the prompt is empty")
				}
				return f.run(ctx, env, args[0])
			}
		},
	}
}

const (
	// gcPercent keeps the Go heap close to what lives: weights are outside it,
	// and the token loop allocates next to nothing.
	gcPercent = 20
	// maxProcs bounds what the Go runtime keeps for each processor. Threads
	// that compute or read are in C or in system calls.
	maxProcs = 2
)

func (f *runFlags) run(ctx context.Context, env *cli.Env, arg string) error {
	debug.SetGCPercent(gcPercent)
	if err := f.check(); err != nil {
		return err
	}
	*f.backend.Threads = cli.Threads(f.backend.Threads.Count())
	if f.backend.Backend != "ref" { // which computes in Go
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxProcs))
	}
	s, planName, err := f.openStore(env, arg)
	if err != nil {
		return err
	}
	t, err := openTokenizer(s)
	if err != nil {
		return err
	}
	if f.chat.on {
		return f.converse(ctx, env, s, planName, t)
	}
	if *f.batch != "" {
		return f.answerAll(ctx, env, s, planName, t)
	}
	prompt, err := f.encode(ctx, env, t, f.promptBytes(s, t))
	if err != nil {
		return err
	}
	r, out, err := f.start(ctx, env, s, planName, t, len(prompt), nil)
	if err != nil {
		return err
	}
	err = f.generate(ctx, env, r, t, prompt)
	return errors.Join(err, r.Close(), out.Close())
}

// start opens the run, for a prompt of some tokens. Some tokens end an answer
// beside the model's own.
func (f *runFlags) start(ctx context.Context, env *cli.Env, s *store.Store, planName string, t *tokenizer.Tokenizer, prompt int, stops []int32) (*run.Run, *traceFile, error) {
	options, err := f.options(s)
	if err != nil {
		return nil, nil, err
	}
	if planName == "" && options.CapBytes > 0 {
		if planName, err = run.ChoosePlan(s, options.CapBytes); err != nil {
			return nil, nil, err
		}
	}
	if err := f.force(t, options); err != nil {
		return nil, nil, err
	}
	if options.Verifier, err = f.openVerifier(env, s); err != nil {
		return nil, nil, err
	}
	if total := options.Environment.Total; options.CapBytes > total {
		env.Warnf("the cap of %d bytes is more than this machine's memory of %d, which is what will be kept", options.CapBytes, total)
	}
	options.Tokenizer, options.PromptTokens, options.StopTokens = t.Bytes(), prompt, stops
	options.Many = *f.batch != "" || f.chat.on
	out, err := f.openTrace(env, options)
	if err != nil {
		return nil, nil, err
	}
	b, err := f.backend.Open()
	if err != nil {
		out.Abort()
		return nil, nil, err
	}
	r, err := run.Open(ctx, s, planName, b, *options)
	if err != nil {
		out.Abort()
		return nil, nil, refusal(err)
	}
	for _, l := range r.Ledger() {
		env.Debugf("%-16s %12d bytes", l.Name, l.Bytes)
	}
	return r, out, nil
}

// check finds mistakes before anything is opened.
func (f *runFlags) check() error {
	_, modeErr := run.ParseMode(f.mode)
	volume, volumeErr := trace.ParseVolume(f.traceVolume)
	switch {
	case modeErr != nil:
		return cli.Usage("--mode: %w", modeErr)
	case volumeErr != nil || volume == trace.Off:
		return cli.Usage("--trace-volume %s: want token or full", f.traceVolume)
	case f.context < 0:
		return cli.Usage("--context %d: want at least 1", f.context)
	case f.maxTokens < 0:
		return cli.Usage("--max-tokens %d: want 0 or more", f.maxTokens)
	case *f.batch != "" && (f.prompt != "" || f.chat.on || *f.forced != ""):
		return cli.Usage("--batch: the prompts are in the requests; -p, --chat and --forced are for one")
	case *f.batch != "" && *f.trace != "":
		return cli.Usage("--trace is of one run: it does not go with --batch")
	}
	return errors.Join(f.sampling.check(), f.chat.check())
}

// openStore opens the store that the argument names.
func (f *runFlags) openStore(env *cli.Env, arg string) (s *store.Store, planName string, err error) {
	planName = f.plan
	if arg == "-" {
		if f.prompt == "" && (*f.batch == "" || *f.batch == "-") {
			return nil, "", cli.WithHint(cli.Usage("stdin is the packed line, so the prompt must be a flag"), "add -p TEXT")
		}
		name, b, err := env.ReadDocument(arg)
		if err != nil {
			return nil, "", err
		}
		packed, err := doc.Read[doc.Packed](name, b)
		if err != nil {
			return nil, "", err
		}
		if arg = packed.Store; planName == "" {
			planName = packed.Plan
		}
		if s, err = store.Open(arg); err == nil && s.SHA256() != packed.Manifest {
			err = cli.No("%s: is not the store that the packed line tells of: its manifest has sha256 %s, not %s", arg, s.SHA256(), packed.Manifest)
		}
		return s, planName, err
	}
	s, err = store.Open(arg)
	return s, planName, notStore(arg, err)
}

// openTokenizer loads the store's tokenizer.
func openTokenizer(s *store.Store) (*tokenizer.Tokenizer, error) {
	const file = "tokenizer.json"
	text, err := s.Text(file)
	if err != nil {
		return nil, err
	}
	return tokenizer.LoadBytes(text, s.Path()+"/"+file)
}

// maxPromptBytes bounds every prompt.
const maxPromptBytes = 16 << 20

// promptBytes is how long a prompt can be that fits the context. A longer one
// is not even read to its end: encoding takes many times its size, which no
// ledger has.
func (f *runFlags) promptBytes(s *store.Store, t *tokenizer.Tokenizer) int {
	context := s.Manifest().Profile.Architecture.ContextTokens
	if f.context > 0 {
		context = min(context, f.context)
	}
	return min(context*t.LongestToken(), maxPromptBytes)
}

// encode turns the prompt, of at most limit bytes, into tokens.
func (f *runFlags) encode(ctx context.Context, env *cli.Env, t *tokenizer.Tokenizer, limit int) ([]int32, error) {
	text := f.prompt
	if text == "" {
		var err error
		if text, err = readPrompt(ctx, env, limit); err != nil {
			return nil, err
		}
	}
	if len(text) > limit {
		return nil, cli.No("the prompt has more than %d bytes, which the context has no room for", limit)
	}
	ids, err := t.Encode(text, tokenizer.EncodeOptions{AddSpecial: !f.raw, ParseSpecial: f.raw})
	if err == nil && len(ids) == 0 {
		err = cli.Usage("the prompt is empty")
	}
	return ids, err
}

// openVerifier reads the document of --verifier.
func (f *runFlags) openVerifier(env *cli.Env, s *store.Store) (run.Verifier, error) {
	if *f.verifier == "" {
		return nil, nil
	}
	name, b, err := env.ReadDocument(*f.verifier)
	if err != nil {
		return nil, err
	}
	d, err := doc.Read[doc.Verifier](name, b)
	if err != nil {
		return nil, err
	}
	profile := &s.Manifest().Profile
	for _, op := range d.Ops() {
		if !slices.ContainsFunc(profile.Ops, func(o doc.Op) bool { return o.ID == op }) {
			return nil, cli.No("--verifier %s: the model has no op %q", *f.verifier, op)
		}
	}
	v, err := run.NewVerifier(d, profile.Architecture.HiddenSize)
	if err != nil {
		return nil, cli.No("--verifier %s: %w", *f.verifier, err)
	}
	return v, nil
}

// force has the run decode the text of --forced.
func (f *runFlags) force(t *tokenizer.Tokenizer, o *run.Options) error {
	if *f.forced == "" {
		return nil
	}
	text, err := readForced(*f.forced)
	if err != nil {
		return err
	}
	if o.Forced, err = t.Encode(text, tokenizer.EncodeOptions{}); err != nil {
		return err
	}
	if n := len(o.Forced); n == 0 {
		return cli.Usage("--forced %s: has no tokens", *f.forced)
	} else if f.maxTokens == 0 || f.maxTokens > n {
		f.maxTokens = n
	}
	return nil
}

// readForced reads a text of at most maxPromptBytes.
func readForced(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", cli.IO("--forced %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPromptBytes+1))
	if err != nil {
		return "", cli.IO("--forced %w", err)
	}
	if len(text) > maxPromptBytes {
		return "", cli.Usage("--forced %s: more than %d bytes", name, maxPromptBytes)
	}
	return string(text), nil
}

// readPrompt reads the prompt from stdin, without the line feed that ends it.
// Of one that is longer than limit it reads a little more than that.
func readPrompt(ctx context.Context, env *cli.Env, limit int) (string, error) {
	if env.StdinIsTerminal() {
		return "", cli.WithHint(cli.Usage("stdin is a terminal, a prompt is expected"), "give it by -p or pipe it in")
	}
	type input struct {
		text []byte
		err  error
	}
	done := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(env.Stdin(), int64(limit)+2))
		done <- input{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case in := <-done:
		if in.err != nil {
			return "", cli.IO("stdin: %w", in.err)
		}
		return strings.TrimSuffix(string(in.text), "\n"), nil
	}
}

// options gathers what the run needs to know.
func (f *runFlags) options(s *store.Store) (*run.Options, error) {
	mode, err := run.ParseMode(f.mode)
	if err != nil {
		return nil, err
	}
	o := &run.Options{
		Mode: mode, Context: f.context, KVType: f.kv, Threads: f.backend.Threads.Count(), Activations: f.backend.Activations,
		Seed: int64(*f.sampling.seed), Sampling: f.sampling.Sampling, Clock: stream.StartClock(),
	}
	if f.backend.Backend != "cpu" {
		o.Activations = "f32"
	}
	if limit := s.Manifest().Profile.Architecture.ContextTokens; f.context > limit {
		return nil, cli.No("--context %d: the model takes at most %d tokens", f.context, limit)
	}
	if f.kv != "" {
		if err := knownKV(&s.Manifest().Profile, f.kv); err != nil {
			return nil, err
		}
	}
	environment, err := mem.ReadEnvironment(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	o.Environment = &environment
	if f.maxRAM.IsSet() {
		meter, err := mem.NewMeter()
		if err != nil {
			return nil, err
		}
		defer meter.Close()
		now, err := meter.Read()
		if err != nil {
			return nil, err
		}
		o.CapBytes, o.CapSource = f.maxRAM.Bytes(environment.Total, environment.Auto(now.Resident)), "flag"
		if f.maxRAM.IsAuto() {
			o.CapSource = "auto"
		}
	}
	return o, nil
}

// knownKV refuses a type of the KV cache that the model does not have.
func knownKV(p *doc.Profile, kv string) error {
	var have []string
	for _, c := range p.KVCaches {
		if c.Type == kv {
			return nil
		}
		have = append(have, c.Type)
	}
	return cli.Usage("--kv %s: want %s", kv, strings.Join(have, " or "))
}

// openTrace begins the trace, if one is wanted.
func (f *runFlags) openTrace(env *cli.Env, o *run.Options) (*traceFile, error) {
	if *f.trace == "" {
		return nil, nil
	}
	out, err := env.CreateStream(*f.trace)
	if err != nil {
		return nil, err
	}
	volume, err := trace.ParseVolume(f.traceVolume)
	if err != nil {
		return nil, err
	}
	o.Trace = trace.NewWriter(out, volume)
	return &traceFile{out}, nil
}

// traceFile is the stream of a trace; nil is none.
type traceFile struct{ *cli.Stream }

func (t *traceFile) Close() error {
	if t == nil {
		return nil
	}
	return t.Stream.Close()
}

func (t *traceFile) Abort() {
	if t != nil {
		t.Stream.Abort()
	}
}

// refusal gives an error of opening its class.
func refusal(err error) error {
	if r, ok := errors.AsType[*run.RefusedError](err); ok {
		no := cli.No("%w", err)
		if hint := r.Hint(); hint != "" {
			return cli.WithHint(no, "%s", hint)
		}
		return no
	}
	if p, ok := errors.AsType[*run.PromptError](err); ok {
		hint := fmt.Sprintf("--context %d has room for it", p.Tokens+1)
		if p.Tokens >= p.Limit {
			hint = fmt.Sprintf("the model takes at most %d", p.Limit)
		}
		return cli.WithHint(cli.No("%w", err), "%s", hint)
	}
	return err
}
