package run

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/ref"
	"substrate/pkg/store"
	"substrate/pkg/trace"
)

// hashes runs a prompt and returns the hash of the logits' bits of every token.
func hashes(t *testing.T, st *store.Store, b backend.Backend, o Options, tokens int) []string {
	t.Helper()
	var out bytes.Buffer
	o.Trace, o.asPlanned = trace.NewWriter(&out, trace.Token), true
	r, err := Open(t.Context(), st, "", b, o)
	if err != nil {
		t.Fatal(err)
	}
	r.program.arch.EOS = nil
	_, res := generate(t, r, prompt, tokens)
	if err := r.End(&res, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range readLines(t, &out).tokens {
		if l.LogitsHash != "" {
			all = append(all, l.LogitsHash)
		}
	}
	if len(all) != tokens {
		t.Fatalf("%d hashes of %d tokens", len(all), tokens)
	}
	return all
}

// Every bit of every token's logits is the same over repeats with random
// delays of reads, and 1, 2 and 4 threads that compute: in mode scheduled with
// upgrades and escalations, in mode exact over cache sizes too.
func TestDeterminism(t *testing.T) {
	const repeats, tokens = 20, 16
	open := func(threads int) backend.Backend {
		b, err := cpu.Open(cpu.Options{Threads: threads})
		if err != nil {
			return ref.Open(threads)
		}
		return b
	}
	script := map[string][]float64{"block_0.attn": {0, 0.9, 0.9}, "block_1.attn": {0, 0, 0, 0.5, 0.5, 0.5}}
	for _, name := range []string{"qwen3moe", "llama-gqa"} {
		var stores []*store.Store
		for _, spec := range residencies() {
			if spec.chunk == 0 {
				spec.ladder, spec.pool = mixed, 1<<16
				stores = append(stores, pack(t, name, false, spec))
			}
		}
		up := upgrading()
		up.pool = 1 << 16
		for _, mode := range []Mode{Scheduled, Exact} {
			from := stores
			if mode == Scheduled { // whose levels are the plan's residency
				from = []*store.Store{pack(t, name, false, up)}
			}
			var want []string
			for i := range repeats {
				o := slow(Options{Mode: mode, Workers: 1 + i%5, Verifier: NewScriptedVerifier(script)}, time.Duration(i%4)*100*time.Microsecond)
				got := hashes(t, from[i%len(from)], open(1<<(i%3)), o, tokens)
				if i == 0 {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s, %v, repeat %d: token %d has other logits", name, mode, i, firstDifference(got, want))
				}
			}
		}
	}
}

func firstDifference(a, b []string) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// A prompt that begins as the one before re-uses whole chunks of it and has the
// very answer that it has alone; after an error, nothing is re-used.
func TestPrefixReuse(t *testing.T) {
	for how, spec := range residencies() {
		spec.ladder, spec.chunk = mixed, 8
		st := pack(t, "qwen3moe", false, spec)
		for _, mode := range []Mode{Scheduled, Exact} {
			r := open(t, st, Options{Mode: mode})
			r.program.arch.EOS = nil
			longer := slices.Concat(prompt, prompt[:7])
			for _, c := range []struct {
				prompt []int32
				reused int
			}{{prompt, 0}, {longer, 16}, {prompt, 16}, {prompt[:16], 8}, {prompt[1:], 0}, {longer, 0}} {
				fresh := open(t, st, Options{Mode: mode})
				fresh.program.arch.EOS = nil
				_, want := generate(t, fresh, c.prompt, 6)
				if _, got := generate(t, r, c.prompt, 6); got.Digest != want.Digest || got.ReusedTokens != c.reused {
					t.Errorf("%s, %v: %d tokens re-used, want %d; digest %s, want %s", how, mode, got.ReusedTokens, c.reused, got.Digest, want.Digest)
				}
			}
			if _, err := r.Generate(t.Context(), longer, 6, func(int32) error { return t.Context().Err() }); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Generate(t.Context(), longer, 6, func(int32) error { return errStop }); !errors.Is(err, errStop) {
				t.Fatal(err)
			}
			if _, res := generate(t, r, longer, 6); res.ReusedTokens != 0 {
				t.Errorf("%s, %v: %d tokens re-used after an error", how, mode, res.ReusedTokens)
			}
			chat := r.NewChat()
			if _, err := chat.Answer(t.Context(), longer, 2, func(int32) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if _, res := generate(t, r, longer, 6); res.ReusedTokens != 0 {
				t.Errorf("%s, %v: %d tokens re-used after a chat", how, mode, res.ReusedTokens)
			}
		}
	}
}

var errStop = errors.New("stop")
