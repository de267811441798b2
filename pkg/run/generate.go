package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/trace"
)

// Result is how a generation ended and what it cost.
type Result struct {
	Reason          string // as in doc.RunEnd
	Tokens          int64  // generated
	PromptTokens    int
	ReusedTokens    int // of the prompt: their keys and values were there
	PrefillNs       int64
	DecodeNs        int64 // of the tokens after the first
	ReadBytes       int64 // of records, since Open
	DecodeReadBytes int64 // of it, after the first token
	NeededBytes     int64 // record bytes that the kernels of one decoded token read
	BitsServed      float64
	PeakBytes       int64
	AnonymousBytes  int64 // the largest sample
	CapBytes        int64
	Digest          string
}

// Within reports whether the measured peak kept the cap.
func (r *Result) Within() bool { return r.PeakBytes <= r.CapBytes }

// TokensPerSec is the speed of decoding.
func (r *Result) TokensPerSec() float64 {
	if r.DecodeNs == 0 {
		return 0
	}
	return float64(r.Tokens-1) * 1e9 / float64(r.DecodeNs)
}

// Reasons of an end.
const (
	StopToken   = "stop_token"
	StopString  = "stop_string"
	MaxTokens   = "max_tokens"
	ContextFull = "context_full"
	Interrupted = "interrupted"
	Failed      = "error"
)

// ErrStopString is what emit returns to end an answer in good order.
var ErrStopString = errors.New("a stop string ends the answer")

// Generate continues a prompt until a stop token, by at most most tokens (0:
// as the context has room for), and calls emit for every token but the stop
// token. An error of emit ends it; [ErrStopString] is none.
//
// The run starts from a clean state: what it generated before leaves no
// trace in the result. The result is a function of store, plan, prompt, seed
// and the backend's path, and is complete up to an error.
//
// Where the prompt begins as the one before, the keys and values of its whole
// chunks are used again: they were computed from a clean start, too.
func (r *Run) Generate(ctx context.Context, prompt []int32, most int, emit func(id int32) error) (Result, error) {
	if len(prompt) == 0 {
		return Result{}, fmt.Errorf("the prompt has no tokens")
	}
	if len(prompt) > r.opt.Context {
		return Result{}, &PromptError{Tokens: len(prompt), Context: r.opt.Context, Limit: r.program.arch.ContextTokens}
	}
	if most < 1 {
		most = r.opt.Context
	}
	cached := r.reusable(prompt)
	r.begin()
	g := &generation{Run: r, prompt: prompt, cached: cached, most: most, digest: newDigest()}
	g.sampler.see(prompt[:cached])
	res, err := g.generate(ctx, emit)
	if err == nil && r.mode != Fastest { // whose levels depend on the disk
		r.prefix = append(r.prefix, prompt[:len(prompt)/r.chunk*r.chunk]...)
	}
	return res, err
}

// reusable is how many tokens at the start of a prompt the KV cache holds from
// the prompt before: whole chunks, since the grouping of rows is a part of how
// they are computed, and not the last token, whose logits are wanted.
func (r *Run) reusable(prompt []int32) int {
	n := 0
	for n < len(r.prefix) && n < len(prompt)-1 && r.prefix[n] == prompt[n] {
		n++
	}
	return n / r.chunk * r.chunk
}

// generation is one answer to a prompt.
type generation struct {
	*Run
	prompt []int32
	cached int // of the prompt: tokens that the KV cache has
	most   int
	before int64 // tokens generated before, in the turns of a chat
	digest *digest
	next   [1]int32
}

// generate runs to the end and leaves the run ready for another.
func (g *generation) generate(ctx context.Context, emit func(int32) error) (Result, error) {
	reason, err := g.run(ctx, emit)
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		reason = Interrupted
	default:
		reason = Failed
	}
	g.dropBanks()
	err = errors.Join(err, g.ring.restart(0), g.Run.sample())
	return g.result(reason), err
}

// pos is the position of the token that was picked last.
func (g *generation) pos() int { return len(g.prompt) + int(g.tokens-g.before) - 1 }

func (g *generation) run(ctx context.Context, emit func(int32) error) (reason string, err error) {
	if err := g.schedule(); err != nil {
		return "", err
	}
	id, err := g.prefill(ctx)
	if err != nil {
		return "", err
	}
	for {
		if g.stops(id) {
			return StopToken, nil
		}
		switch err := emit(id); {
		case err == ErrStopString:
			return StopString, nil
		case err != nil:
			return "", err
		case g.tokens-g.before >= int64(g.most):
			return MaxTokens, nil
		case g.pos() >= g.opt.Context:
			return ContextFull, nil
		}
		if id, err = g.decode(ctx, id); err != nil {
			return "", err
		}
	}
}

// begin resets what one prompt must not leave to the next.
func (r *Run) begin() {
	r.prefix = r.prefix[:0]
	r.dropBanks()
	r.resetTiers()
	r.tokens, r.turns, r.prefillNs, r.decodeNs = 0, 0, 0, 0
	r.servedBits, r.servedWeights, r.needed = 0, 0, 0
	r.reads.after = 0
	r.sampler = newSampler(r.opt.Sampling, r.program.arch.VocabSize, uint64(r.opt.Seed))
	r.history.Reset()
	r.monitor.Reset()
	r.fallbacks = FallbackPlanner{}
	if r.opt.Verifier != nil {
		r.opt.Verifier.Reset()
	}
}

// schedule begins the reads of an answer.
func (g *generation) schedule() error {
	g.held, g.decoding = false, g.alwaysDecoding
	g.reads.token = g.tokens
	g.turns++
	g.sampler.see(g.prompt[g.cached:])
	chunks := (len(g.prompt) - g.cached + g.chunk - 1) / g.chunk
	steps := chunks + min(g.most, g.opt.Context-len(g.prompt)+1) - 1
	return g.ring.restart(int64(steps) * int64(len(g.ring.entries)))
}

// prefill computes what the cache lacks of the prompt, in chunks, and picks
// the first token.
func (g *generation) prefill(ctx context.Context) (id int32, err error) {
	for at := g.cached; at < len(g.prompt); at += g.chunk {
		chunk := g.prompt[at:min(at+g.chunk, len(g.prompt))]
		last := at+len(chunk) == len(g.prompt)
		start := g.reads.clock.Now()
		if err := g.step(ctx, chunk, at, last); err != nil {
			return 0, err
		}
		id = -1
		if last {
			if id, err = g.pick(); err != nil {
				return 0, err
			}
		}
		ns := int64(g.reads.clock.Now() - start)
		g.prefillNs += ns
		g.line("prefill", len(chunk), id, ns)
	}
	return id, g.sample()
}

// sampleEvery is how many tokens apart the process's memory is measured.
const sampleEvery = 32

// decode computes one token and picks the next.
func (g *generation) decode(ctx context.Context, id int32) (int32, error) {
	start := g.reads.clock.Now()
	if err := g.advance(ctx); err != nil {
		return 0, err
	}
	g.next[0] = id
	if err := g.step(ctx, g.next[:], g.pos(), true); err != nil {
		return 0, err
	}
	id, err := g.pick()
	if err != nil {
		return 0, err
	}
	ns := int64(g.reads.clock.Now() - start)
	g.decodeNs += ns
	g.line("decode", 1, id, ns)
	g.assess()
	if g.tokens%sampleEvery == 0 {
		return id, g.sample()
	}
	return id, nil
}

// advance begins a token of the answer: tiers and slots change now.
func (g *generation) advance(ctx context.Context) error {
	if !g.decoding {
		g.decoding, g.disk = true, g.reads.reader.Totals()
	}
	g.reads.token = g.tokens
	if err := g.switchTiers(ctx); err != nil {
		return err
	}
	return g.scheduleSlots(ctx)
}

// assess ends a token of the answer: the monitor looks back. Its signals are
// traced, and in mode fastest a critical one brings every op back to its
// default tier.
func (g *generation) assess() {
	now, before := g.reads.reader.Totals(), g.disk
	g.monitor.EndToken(now.Bytes-before.Bytes, now.Reads-before.Reads, now.BusyNs-before.BusyNs)
	g.disk = now
	for _, s := range g.monitor.Assess() {
		acted := s.Critical && g.mode == Fastest
		if acted && g.controller != nil {
			g.controller.ForceDemoteAll()
		}
		g.signalLine = doc.SignalLine{TraceHead: g.reads.head(), Signal: s.Name, Measured: s.Measured, Expected: s.Expected, Acted: acted}
		g.opt.Trace.Signal(&g.signalLine)
	}
}

// pick reads the logits and samples.
func (g *generation) pick() (int32, error) {
	if err := g.graph.Logits(g.logits, 0); err != nil {
		return 0, err
	}
	id := g.sampler.pick(g.logits)
	if g.tokens < int64(len(g.opt.Forced)) {
		id = g.opt.Forced[g.tokens]
	}
	g.digest.add(g.logits, id)
	g.tokens++
	return id, nil
}

func (g *generation) stops(id int32) bool {
	for _, eos := range g.program.arch.EOS {
		if int(id) == eos {
			return true
		}
	}
	return slices.Contains(g.opt.StopTokens, id)
}

// line ends a step in the trace.
func (g *generation) line(phase string, tokens int, id int32, ns int64) {
	if !g.opt.Trace.Wants(trace.Token) {
		return
	}
	g.tokenLine = doc.TokenLine{
		TraceHead: g.reads.head(), Phase: phase, Tokens: tokens, ID: id, TimeNs: ns, WaitNs: g.reads.wait, ReadBytes: g.reads.step,
	}
	if id >= 0 {
		g.tokenLine.LogitsHash = g.digest.logits()
	}
	g.opt.Trace.Token(&g.tokenLine)
}

func (g *generation) result(reason string) Result {
	r := g.Run
	res := Result{
		Reason: reason, Tokens: r.tokens, PromptTokens: len(g.prompt), PrefillNs: r.prefillNs, DecodeNs: r.decodeNs,
		ReadBytes: r.reads.total, DecodeReadBytes: r.reads.after, PeakBytes: r.peak.Peak, AnonymousBytes: r.peak.Anonymous,
		CapBytes: r.opt.CapBytes, Digest: g.digest.run(), ReusedTokens: g.cached,
	}
	if decoded := r.tokens - r.turns; decoded > 0 {
		res.NeededBytes = r.needed / decoded
		res.BitsServed = r.servedBits / r.servedWeights
	}
	return res
}

// End writes the last line of the trace. exit is the process's exit code.
func (r *Run) End(res *Result, exit int) error {
	return r.opt.Trace.End(&doc.RunEnd{
		TraceHead: r.reads.head(), Exit: exit, Reason: res.Reason, Tokens: res.Tokens, DecodeNs: res.DecodeNs, PrefillNs: res.PrefillNs,
		PeakBytes: res.PeakBytes, CapBytes: res.CapBytes, ReadBytes: res.ReadBytes, DecodeReadBytes: res.DecodeReadBytes,
		NeededBytes: res.NeededBytes, BitsServed: res.BitsServed, Digest: res.Digest,
	})
}
