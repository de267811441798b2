package arch_test

import (
	"errors"
	"testing"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
)

// partial is a backend that lacks one feature.
type partial struct {
	*ref.Backend
	lacks backend.Feature
}

func (p partial) Lacks(f backend.Feature) bool { return f == p.lacks }

func TestPartialBackends(t *testing.T) {
	latent := func(a *doc.Architecture) {
		a.KVHeads, a.HeadDim, a.Latent = 1, 48, &doc.Latent{KVRank: 32, NoPEDim: 32, RoPEDim: 16, ValueDim: 32}
	}
	features := map[backend.Feature]func(*doc.Architecture){
		backend.Sinks:      func(a *doc.Architecture) { a.AttentionSinks = true },
		backend.ClampedGLU: func(a *doc.Architecture) { a.SwiGLUAlpha, a.SwiGLULimit = 1.702, 7 },
		backend.Latents:    latent,
	}
	for lacking := range features {
		for needed, need := range features {
			a := tiny
			need(&a)
			b := partial{ref.Open(1), lacking}
			_, err := arch.New(b, &a, arch.Options{Context: 8, KVType: "f32", Chunk: 1, LogitRows: 1})
			var unsupported *arch.UnsupportedError
			if refused := errors.As(err, &unsupported); refused != (lacking == needed) || !refused && err != nil {
				t.Errorf("a model with %s on a backend without %s: %v", needed, lacking, err)
			}
			if unsupported != nil && (unsupported.ExitCode() != 1 || unsupported.Feature != needed) {
				t.Errorf("refusal %v of exit code %d", unsupported, unsupported.ExitCode())
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// The registers of latent attention are part of the formula.
func TestLatentRegisters(t *testing.T) {
	a := tiny
	a.KVHeads, a.HeadDim, a.Latent = 1, 48, &doc.Latent{QRank: 24, KVRank: 32, NoPEDim: 32, RoPEDim: 16, ValueDim: 8}
	o := arch.Options{Context: 16, KVType: "f32", Chunk: 4, LogitRows: 4}
	attention := 2*32 + 2*16 + 2*32 + 2*48 + 32 + 16 + 48 + 2*32 + 2*8 + 24
	want := int64(4) * int64(2*64+50+96+96+2*64+attention) * 4
	if got := arch.RegisterBytes(&a, o); got != want {
		t.Errorf("RegisterBytes = %d, want %d", got, want)
	}
}
