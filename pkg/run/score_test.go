package run

import (
	"slices"
	"testing"

	"substrate/pkg/backend/ref"
)

// Scoring what a run generated sees the very logits that it picked from, in
// both modes, whatever streams.
func TestScoreIsWhatGenerateDoes(t *testing.T) {
	st := pack(t, "qwen3moe", false, upgrading())
	for _, mode := range []Mode{Scheduled, Exact} {
		generating := open(t, st, Options{Mode: mode})
		generating.program.arch.EOS = nil
		ids, want := generate(t, generating, prompt[:1], 24)

		scoring, err := OpenPlanned(t.Context(), st, "", ref.Open(1), Options{Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		defer scoring.Close()
		for again := range 2 { // nothing is left of the sequence before
			seen := 0
			got, err := scoring.Score(t.Context(), slices.Concat(prompt[:1], ids), func(i int, logits []float32) error {
				if i != seen {
					t.Errorf("%v: position %d after %d", mode, i, seen)
				}
				seen++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest != want.Digest || seen != len(ids)+1 {
				t.Errorf("%v, %d: digest %s of %d tokens, generating had %s of %d", mode, again, got.Digest, seen, want.Digest, len(ids)+1)
			}
			if got.DecodeReadBytes == 0 || got.BitsServed == 0 {
				t.Errorf("%v: read %d bytes, served %g bits", mode, got.DecodeReadBytes, got.BitsServed)
			}
		}
	}
}

func TestScoreRefuses(t *testing.T) {
	st := pack(t, "qwen3moe", false, upgrading())
	r, err := OpenPlanned(t.Context(), st, "", ref.Open(1), Options{Context: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	see := func(int, []float32) error { return nil }
	if _, err := r.Score(t.Context(), nil, see); err == nil {
		t.Error("no tokens were scored")
	}
	if _, err := r.Score(t.Context(), prompt[:5], see); err == nil {
		t.Error("5 tokens were scored in a context of 4")
	}
}
