package run

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/store"
	"substrate/pkg/stream"
	"substrate/pkg/trace"
)

// device is a disk in virtual time: every read after the load takes its time,
// one after another.
type device struct {
	stream.File
	take func(bytes int) time.Duration
	on   *atomic.Bool
	turn chan struct{} // one slot; not a mutex, on which virtual time stands still
}

func (d device) ReadAt(p []byte, offset int64) (int, error) {
	if d.on.Load() {
		d.turn <- struct{}{}
		time.Sleep(d.take(len(p)))
		<-d.turn
	}
	return d.File.ReadAt(p, offset)
}

// lines are those of a trace that tests look at.
type lines struct {
	tokens    []*doc.TokenLine
	signals   []*doc.SignalLine
	fallbacks []*doc.FallbackLine
	tiers     []*doc.TierLine
	ops       []*doc.OpLine
}

// on runs a store in virtual time on a device and returns what it did.
func on(t *testing.T, st *store.Store, o Options, tokens int, take func(bytes int) time.Duration) (ids []int32, res Result, err error, l *lines) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var started atomic.Bool
		turn := make(chan struct{}, 1)
		o.Trace, o.asPlanned, o.Clock = trace.NewWriter(&out, trace.Full), true, stream.StartClock()
		o.wrapFile = func(f stream.File) stream.File { return device{f, take, &started, turn} }
		r, openErr := Open(t.Context(), st, "", ref.Open(1), o)
		if openErr != nil {
			t.Fatal(openErr)
		}
		r.program.arch.EOS = nil
		res, err = r.Generate(t.Context(), prompt, tokens, func(id int32) error {
			started.Store(true) // prefill is not judged
			ids = append(ids, id)
			return nil
		})
		for _, line := range []string{doc.LedgerSlots, doc.LedgerRing, doc.LedgerPool} {
			if used := r.manager.Used(line); used != 0 && line != doc.LedgerPool {
				t.Errorf("%d bytes of %s are in use after the end", used, line)
			}
		}
		if err := r.End(&res, 0); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := trace.Validate("t", bytes.NewReader(out.Bytes())); err != nil {
			t.Error(err)
		}
		l = readLines(t, &out)
	})
	return ids, res, err, l
}

func readLines(t *testing.T, from io.Reader) *lines {
	t.Helper()
	l := new(lines)
	for r := trace.NewReader("t", from); ; {
		line, _, err := r.Next()
		if err == io.EOF {
			return l
		}
		if err != nil {
			t.Fatal(err)
		}
		switch line := line.(type) {
		case *doc.TokenLine:
			l.tokens = append(l.tokens, line)
		case *doc.SignalLine:
			l.signals = append(l.signals, line)
		case *doc.FallbackLine:
			l.fallbacks = append(l.fallbacks, line)
		case *doc.TierLine:
			l.tiers = append(l.tiers, line)
		case *doc.OpLine:
			l.ops = append(l.ops, line)
		}
	}
}

// slowest is the longest step of decode.
func (l *lines) slowest() (ns time.Duration) {
	for _, t := range l.tokens {
		if t.Phase == "decode" {
			ns = max(ns, time.Duration(t.TimeNs))
		}
	}
	return ns
}

func (l *lines) signal(name string) *doc.SignalLine {
	for _, s := range l.signals {
		if s.Signal == name {
			return s
		}
	}
	return nil
}

// refined has skeletons below residuals at its default tier: a coarser level
// is always there.
func refined(op *doc.Op) ladder {
	switch op.Kind {
	case doc.KindMoEExpert, doc.KindMLPDense:
		return ladder{{q2, r3}, {q2, r3, r4}}
	case doc.KindAttention:
		return ladder{{q4}, {q8}}
	}
	return ladder{{q8}}
}

// skeletons holds the skeletons and streams the residuals, through the ring or
// 3 slots, with deadlines.
func skeletons(fallback string) planSpec {
	return planSpec{
		ladder: refined, slots: 3, pace: time.Millisecond, rate: 100 << 20, fallback: fallback,
		streamed: func(op *doc.Op, record string) bool { return record != op.ID+".skeleton" },
	}
}

// coarse is the same plan without its residuals.
func coarse() planSpec {
	return planSpec{ladder: func(op *doc.Op) ladder { l := refined(op); return ladder{l[0][:1]} }}
}

// In mode fastest no token waits for a disk that stands still: it computes on
// the skeletons, exactly as a plan without the residuals would, says so, and
// reports fewer bits.
func TestFastestNeverWaits(t *testing.T) {
	for _, name := range []string{"qwen3moe", "qwen3moe-mixed", "llama-gqa"} {
		st := pack(t, name, false, skeletons(doc.FallbackSkeletonOnly))
		stuck := func(int) time.Duration { return time.Hour }
		got, res, err, l := on(t, st, Options{Mode: Fastest}, 12, stuck)
		if err != nil {
			t.Fatal(err)
		}
		if slowest := l.slowest(); slowest > time.Second {
			t.Errorf("%s: a token took %v", name, slowest)
		}
		if len(l.fallbacks) == 0 || l.fallbacks[0].Strategy != doc.FallbackSkeletonOnly {
			t.Errorf("%s: %d fallbacks", name, len(l.fallbacks))
		}
		whole, wholeRes, err, _ := on(t, st, Options{}, 12, func(int) time.Duration { return 0 })
		if err != nil || wholeRes.BitsServed <= res.BitsServed {
			t.Errorf("%s: %v; %v bits served without the residuals, %v with", name, err, res.BitsServed, wholeRes.BitsServed)
		}
		// Only its prefill had residuals; the answer begins from that.
		if !slices.Equal(got[:1], whole[:1]) || res.Digest == wholeRes.Digest {
			t.Errorf("%s: got %v, with residuals %v", name, got, whole)
		}
	}
}

// The skeletons alone compute what a plan of skeletons does: with a prompt of
// one token, whose step is a decode step too, the answers are equal.
func TestSkeletonsComputeTheCoarserPlan(t *testing.T) {
	st, plain := pack(t, "qwen3moe", false, skeletons(doc.FallbackSkeletonOnly)), pack(t, "qwen3moe", false, coarse())
	want := open(t, plain, Options{})
	want.program.arch.EOS = nil
	ids := slices.Concat(prompt[:1], prompt)
	var logits [][]float32
	keep := func(_ int, l []float32) error {
		logits = append(logits, slices.Clone(l))
		return nil
	}
	if _, err := want.Score(t.Context(), ids, keep); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Bool
		turn := make(chan struct{}, 1)
		r, err := Open(t.Context(), st, "", ref.Open(1), Options{Mode: Fastest, asPlanned: true, Clock: stream.StartClock(), wrapFile: func(f stream.File) stream.File {
			return device{f, func(int) time.Duration { return time.Hour }, &started, turn}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		started.Store(true)
		r.alwaysDecoding = true
		if _, err := r.Score(t.Context(), ids, func(i int, l []float32) error {
			if !slices.Equal(l, logits[i]) {
				t.Fatalf("position %d: other logits than the plan of skeletons", i)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// One read of 2 s: the modes that promise an answer wait and give it, and trace
// the signals; fastest goes on, and acts.
func TestLatencySpike(t *testing.T) {
	st := pack(t, "qwen3moe", false, skeletons(doc.FallbackSkeletonOnly))
	spike := func() func(int) time.Duration {
		var mu sync.Mutex
		n := 0
		return func(int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 40 {
				return 2 * time.Second
			}
			return 10 * time.Microsecond
		}
	}
	for _, mode := range []Mode{Scheduled, Exact} {
		_, want, err, l := on(t, st, Options{Mode: mode}, 40, func(int) time.Duration { return 0 })
		if err != nil || len(l.signals) > 0 || len(l.fallbacks) > 0 {
			t.Fatalf("%v: %v, signals %v on an idle disk", mode, err, l.signals)
		}
		_, res, err, l := on(t, st, Options{Mode: mode}, 40, spike())
		if err != nil || res.Digest != want.Digest {
			t.Errorf("%v: %v, digest %s, want %s", mode, err, res.Digest, want.Digest)
		}
		critical := l.signal(LatencyCritical)
		if critical == nil || critical.Acted || l.signal(LatencyWarn) == nil || l.slowest() < time.Second {
			t.Errorf("%v: signals %+v, slowest token %v", mode, l.signals, l.slowest())
		}
	}
	_, _, err, l := on(t, st, Options{Mode: Fastest}, 40, spike())
	if err != nil || l.slowest() > time.Second/2 || len(l.fallbacks) == 0 {
		t.Errorf("fastest: %v, slowest token %v, %d fallbacks", err, l.slowest(), len(l.fallbacks))
	}
}

// A disk at a tenth of its forecast raises SSD_BW_CRITICAL in every mode; in
// fastest it brings escalated ops back.
func TestSlowDisk(t *testing.T) {
	spec := skeletons(doc.FallbackSkeletonOnly)
	spec.pool, spec.rate = 1<<17, 10<<20
	st := pack(t, "qwen3moe", false, spec)
	disk := func(rate float64) func(int) time.Duration {
		return func(bytes int) time.Duration {
			return time.Duration(float64(bytes)/rate*1e9) + 100*time.Microsecond
		}
	}
	script := map[string][]float64{"block_0.attn": slices.Repeat([]float64{0.5}, 60)}
	options := func(m Mode) Options { return Options{Mode: m, Verifier: NewScriptedVerifier(script)} }
	_, want, err, l := on(t, st, options(Scheduled), 40, disk(10<<20))
	if err != nil || l.signal(SSDCritical) != nil {
		t.Fatalf("at its forecast: %v, %+v", err, l.signal(SSDCritical))
	}
	_, res, err, l := on(t, st, options(Scheduled), 40, disk(1<<20))
	if s := l.signal(SSDCritical); err != nil || s == nil || s.Acted || math.Abs(s.Measured/s.Expected-0.1) > 0.05 || res.Digest != want.Digest {
		t.Errorf("scheduled at a tenth: %v, %+v, digest %s, want %s", err, l.signals, res.Digest, want.Digest)
	}
	_, _, err, l = on(t, st, options(Fastest), 40, disk(1<<20))
	if s := l.signal(SSDCritical); err != nil || s == nil || !s.Acted {
		t.Errorf("fastest at a tenth: %v, %+v", err, l.signals)
	}
	demoted := slices.ContainsFunc(l.tiers, func(l *doc.TierLine) bool { return l.Reason == "demote_all" })
	if !demoted {
		t.Errorf("fastest at a tenth: tiers changed %+v, want demote_all", l.tiers)
	}
}

// Every strategy does what it says when a disk stands still.
func TestFallbackStrategies(t *testing.T) {
	stuck := func(int) time.Duration { return time.Hour }
	_, res, err, l := on(t, pack(t, "qwen3moe", false, skeletons(doc.FallbackStall)), Options{Mode: Fastest}, 3, func(int) time.Duration { return time.Second })
	if err != nil || l.slowest() < time.Second || len(l.fallbacks) > 0 {
		t.Errorf("stall: %v, slowest %v, fallbacks %d", err, l.slowest(), len(l.fallbacks))
	}
	_, res, err, _ = on(t, pack(t, "qwen3moe", false, skeletons(doc.FallbackAbortToken)), Options{Mode: Fastest}, 3, stuck)
	if late, ok := errors.AsType[*DeadlineError](err); !ok || res.Reason != Failed || late.ExitCode() != 4 {
		t.Errorf("abort_token: %v, reason %s", err, res.Reason)
	}
	// The model has no shared expert: its skeletons serve instead.
	_, _, err, l = on(t, pack(t, "qwen3moe", false, skeletons(doc.FallbackSharedExpert)), Options{Mode: Fastest}, 3, stuck)
	if err != nil || len(l.fallbacks) == 0 || l.fallbacks[0].Strategy != doc.FallbackSkeletonOnly {
		t.Errorf("shared_expert without one: %v, %+v", err, l.fallbacks)
	}
	for _, c := range []struct {
		planned          Strategy
		skeleton, shared bool
		want             Strategy
	}{
		{SkeletonOnly, true, false, SkeletonOnly}, {SkeletonOnly, false, true, Stall}, {SharedExpert, true, true, SharedExpert},
		{SharedExpert, false, false, Stall}, {AbortToken, true, true, AbortToken}, {Stall, true, true, Stall},
	} {
		var f FallbackPlanner
		if got := f.Decide(c.planned, c.skeleton, c.shared); got != c.want || f.Taken(got) != 1 {
			t.Errorf("%v with skeleton %v, shared %v: %v, want %v", c.planned, c.skeleton, c.shared, got, c.want)
		}
	}
}

// In mode fastest an escalation acts once its records are there, and holds; a
// slow disk delays it, not the tokens.
func TestFastestEscalation(t *testing.T) {
	spec := skeletons(doc.FallbackSkeletonOnly)
	spec.streamed = func(op *doc.Op, record string) bool { return record == op.ID+".level_1" }
	spec.pool = 1 << 17
	st := pack(t, "qwen3moe", false, spec)
	script := map[string][]float64{"block_1.attn": slices.Repeat([]float64{0.5}, 30)}
	for _, c := range []struct {
		take  time.Duration
		first int64 // token that runs at tier 1
	}{{0, 2}, {50 * time.Millisecond, 3}} {
		// A token takes no virtual time but for waiting, up to its op's deadline.
		_, _, err, l := on(t, st, Options{Mode: Fastest, Verifier: NewScriptedVerifier(script)}, 20, func(int) time.Duration { return c.take })
		if err != nil {
			t.Fatal(err)
		}
		first := int64(-1)
		for _, op := range l.ops {
			if op.Op == "block_1.attn" && op.Tier == 1 && first < 0 {
				first = op.Token
			}
		}
		if c.take == 0 && first != c.first || c.take > 0 && first < c.first {
			t.Errorf("reads of %v: at tier 1 from token %d, want %d", c.take, first, c.first)
		}
		if l.slowest() > 45*time.Millisecond {
			t.Errorf("reads of %v: a token took %v", c.take, l.slowest())
		}
	}
}
