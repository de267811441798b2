package calib

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/mlx"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
)

// openMLX skips a test where the backend is not there; where the environment
// names its library, it must be.
func openMLX(t *testing.T) backend.Backend {
	t.Helper()
	b, err := mlx.Open(mlx.Options{})
	if err != nil {
		if os.Getenv(mlx.LibraryVariable) != "" {
			t.Fatal(err)
		}
		t.Skipf("%v: %s", err, mlx.Remedy)
	}
	return b
}

// refusedByMLX checks that a model is refused that needs what mlx lacks, and reports whether it is one.
func refusedByMLX(t *testing.T, m *model.Model) bool {
	t.Helper()
	b := openMLX(t)
	defer b.Close()
	a, lacks := &m.Profile().Architecture, func(f backend.Feature) bool { return b.(backend.Partial).Lacks(f) }
	if !(a.Latent != nil && lacks(backend.Latents)) && !(a.AttentionSinks && lacks(backend.Sinks)) && !(a.SwiGLULimit > 0 && lacks(backend.ClampedGLU)) {
		return false
	}
	_, err := NewForward(b, m.Profile(), 8, "f32")
	if _, ok := errors.AsType[*arch.UnsupportedError](err); !ok {
		t.Errorf("%s: %v, want a refusal", m.Profile().Family, err)
	}
	return true
}

// TestMLXLogitsEqualTransformers: the same goldens and the same tolerance as
// for the reference backend.
func TestMLXLogitsEqualTransformers(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if !refusedByMLX(t, m) {
			testLogits(t, dir, g, m, openMLX(t))
		}
	})
}

// TestMLXEqualsOthersOnCodes runs models whose matrices are codes, with a
// residual on each, and wants the logits of both other backends.
func TestMLXEqualsOthersOnCodes(t *testing.T) {
	encodings := []doc.Encoding{
		{Bits: 3, Group: 32, Scale: "bf16", Fit: "minmax", FitVersion: 1},
		{Bits: 2, Group: 32, Scale: "f16", Fit: "minmax", FitVersion: 1, Residual: true},
	}
	for i := range encodings {
		encodings[i].ID = doc.EncodingID(&encodings[i])
	}
	skeleton := &doc.Level{Encodings: []string{encodings[0].ID}}
	whole := &doc.Level{Encodings: []string{encodings[0].ID, encodings[1].ID}}
	eachGolden(t, func(t *testing.T, _ string, g *golden, m *model.Model) {
		if refusedByMLX(t, m) {
			return
		}
		coder := newCoder(encodings, m, nil, 2)
		records := func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
			if op.Kind == doc.KindNorm || op.Kind == doc.KindMoERouter { // never codes
				return coder.records(ctx, op, skeleton)
			}
			return coder.records(ctx, op, whole)
		}
		openCPU := func(t *testing.T) backend.Backend {
			b, err := cpu.Open(cpu.Options{Threads: 2, Activations: cpu.F32})
			if err != nil {
				t.Skip(err)
			}
			return b
		}
		want := codedLogits(t, m, ref.Open(2), records, g.Prompts[1].IDs)
		std := math.Sqrt(variance(want))
		for _, open := range []func(*testing.T) backend.Backend{openMLX, openCPU} {
			b := open(t)
			name := b.Name() + " " + b.Path()
			var worst float64
			for i, x := range codedLogits(t, m, b, records, g.Prompts[1].IDs) {
				worst = max(worst, math.Abs(float64(x-want[i])))
			}
			t.Logf("%s: largest difference from ref %.2g of std(logits)", name, worst/std)
			if !(worst <= 1e-4*std) {
				t.Errorf("%s: logits differ by %g, std is %g", name, worst, std)
			}
		}
	})
}

// codedLogits runs a prompt in chunks of 64 and returns all logits. It closes
// the backend. The KV cache is float32: one in f16 turns a difference of a bit
// into one of a thousandth wherever a value lies between two.
func codedLogits(t *testing.T, m *model.Model, b backend.Backend, records Records, ids []int32) []float32 {
	t.Helper()
	defer b.Close()
	coded, err := LoadCoded(context.Background(), b, m.Profile(), records)
	if err != nil {
		t.Fatal(err)
	}
	defer coded.Free()
	f, err := NewForward(b, m.Profile(), len(ids), "f32")
	if err != nil {
		t.Fatal(err)
	}
	vocab := m.Profile().Architecture.VocabSize
	logits := make([]float32, len(ids)*vocab)
	for pos := 0; pos < len(ids); pos += 64 {
		n := min(64, len(ids)-pos)
		if err := f.step(ids[pos:pos+n], pos, 0, coded.Weights, nil); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := f.G.Logits(logits[(pos+i)*vocab:][:vocab], i); err != nil {
				t.Fatal(err)
			}
		}
	}
	return logits
}

func variance(values []float32) float64 {
	var sum, squares float64
	for _, x := range values {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	n := float64(len(values))
	return squares/n - sum/n*sum/n
}
