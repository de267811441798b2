package calib

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
)

const mlxLM = "../../testdata/mlx_lm"

// mlxGolden is testdata/mlx_lm/NAME.json, made by scripts/make_mlx_goldens.py.
type mlxGolden struct {
	Bits      int     `json:"bits"`
	Group     int     `json:"group"`
	IDs       []int32 `json:"ids"`
	Positions []int   `json:"positions"`
	LogitsStd float64 `json:"logits_std"`
	GreedyIDs []int32 `json:"greedy_ids"`
}

// TestMLXLMOnQuantizedWeights: on weights that MLX quantized, every backend has
// mlx-lm's logits, and the same greedy tokens follow.
func TestMLXLMOnQuantizedWeights(t *testing.T) { testMLXLM(t, mlxLM, goldenModels) }

// TestMLXLMOnExports: on a folder that sb-pack export wrote for mlx-lm, with
// every width of codes, our logits are mlx-lm's.
func TestMLXLMOnExports(t *testing.T) {
	exports := filepath.Join(mlxLM, "exports")
	testMLXLM(t, exports, exports)
}

func testMLXLM(t *testing.T, goldens, models string) {
	paths, err := filepath.Glob(filepath.Join(goldens, "*.json"))
	if err != nil || len(paths) < 2 {
		t.Fatalf("%d goldens, %v; want 2 or more", len(paths), err)
	}
	backends := map[string]func(*testing.T) backend.Backend{
		"ref": func(*testing.T) backend.Backend { return ref.Open(2) },
		"cpu": func(t *testing.T) backend.Backend {
			b, err := cpu.Open(cpu.Options{Threads: 2, Activations: cpu.F32})
			if err != nil {
				t.Skip(err)
			}
			return b
		},
		"mlx": openMLX,
	}
	for _, path := range paths {
		name := filepath.Base(path[:len(path)-len(".json")])
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var g mlxGolden
		if err := jsonio.UnmarshalLoose(path, text, &g); err != nil {
			t.Fatal(err)
		}
		want := readFloats(t, filepath.Join(goldens, name+".logits.f32"))
		for of, open := range backends {
			t.Run(fmt.Sprintf("%s/%s", name, of), func(t *testing.T) {
				m, err := model.Open(filepath.Join(models, name))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				b := open(t)
				defer b.Close()
				compareMLXLM(t, b, m, &g, want)
			})
		}
	}
}

func compareMLXLM(t *testing.T, b backend.Backend, m *model.Model, g *mlxGolden, want []float32) {
	e := doc.Encoding{Bits: g.Bits, Group: g.Group, Scale: "bf16", Fit: "minmax", FitVersion: 1}
	if g.Bits == 0 { // the model has codes of its own: compute with what they stand for
		e = doc.Encoding{Bits: 32, Fit: "none"}
	}
	e.ID = doc.EncodingID(&e)
	coder, level := newCoder([]doc.Encoding{e}, m, nil, 2), &doc.Level{Encodings: []string{e.ID}}
	coded, err := LoadCoded(context.Background(), b, m.Profile(), func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
		return coder.records(ctx, op, level)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer coded.Free()
	f, err := NewForward(b, m.Profile(), len(g.IDs)+len(g.GreedyIDs), "f32")
	if err != nil {
		t.Fatal(err)
	}
	step := func(ids []int32, pos int) []float32 {
		t.Helper()
		if err := f.step(ids, pos, 0, coded.Weights, nil); err != nil {
			t.Fatal(err)
		}
		vocab := m.Profile().Architecture.VocabSize
		logits := make([]float32, len(ids)*vocab)
		for i := range ids {
			if err := f.G.Logits(logits[i*vocab:][:vocab], i); err != nil {
				t.Fatal(err)
			}
		}
		return logits
	}
	logits := step(g.IDs, 0)
	vocab := len(logits) / len(g.IDs)
	var worst float64
	for i, pos := range g.Positions {
		for j, x := range want[i*vocab:][:vocab] {
			worst = max(worst, math.Abs(float64(logits[pos*vocab+j]-x)))
		}
	}
	t.Logf("largest difference %.2g of std(logits)", worst/g.LogitsStd)
	if !(worst <= 1e-4*g.LogitsStd) {
		t.Errorf("logits differ by %g, std is %g", worst, g.LogitsStd)
	}
	var greedy []int32
	last := logits[len(logits)-vocab:]
	for i := range g.GreedyIDs {
		greedy = append(greedy, int32(slices.Index(last, slices.Max(last))))
		last = step(greedy[i:], len(g.IDs)+i)
	}
	if !slices.Equal(greedy, g.GreedyIDs) {
		t.Errorf("greedy tokens %v, want %v", greedy, g.GreedyIDs)
	}
}
