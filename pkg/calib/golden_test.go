package calib

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/backend"
	"substrate/pkg/backend/ref"
	"substrate/pkg/model"
)

// golden is testdata/models/*/golden.json, made by scripts/make_goldens.py
// from transformers in float32.
type golden struct {
	Vocab   int `json:"vocab"`
	Prompts []struct {
		Name            string  `json:"name"`
		IDs             []int32 `json:"ids"`
		LogitsFile      string  `json:"logits_file"`
		LogitsPositions []int   `json:"logits_positions"`
		LogitsStd       float64 `json:"logits_std"`
		HiddenFile      string  `json:"hidden_file"`
	} `json:"prompts"`
}

func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

const goldenModels = "../../testdata/models"

func eachGolden(t *testing.T, test func(t *testing.T, dir string, g *golden, m *model.Model)) {
	dirs, err := filepath.Glob(filepath.Join(goldenModels, "*", "golden.json"))
	if err != nil || len(dirs) < 14 {
		t.Fatalf("%d golden models, %v; want 14 or more", len(dirs), err)
	}
	for _, path := range dirs {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := jsonio.UnmarshalLoose(path, b, &g); err != nil {
				t.Fatal(err)
			}
			m, err := model.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			test(t, dir, &g, m)
		})
	}
}

// TestLogitsEqualTransformers runs every golden prompt in one step and in
// chunks, and wants logits within 1e-4 of their standard deviation.
func TestLogitsEqualTransformers(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		testLogits(t, dir, g, m, ref.Open(2))
	})
}

func testLogits(t *testing.T, dir string, g *golden, m *model.Model, b backend.Backend) {
	defer b.Close()
	dense, err := LoadDense(context.Background(), b, m, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer dense.Free()
	f, err := NewForward(b, m.Profile(), 300, "f32")
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Prompts) < 2 {
		t.Fatalf("%d golden prompts, want 2 or more", len(g.Prompts))
	}
	for _, p := range g.Prompts {
		want := readFloats(t, filepath.Join(dir, p.LogitsFile))
		for _, chunk := range []int{len(p.IDs), 64} {
			got := make(map[int][]float32)
			for pos := 0; pos < len(p.IDs); pos += chunk {
				n := min(chunk, len(p.IDs)-pos)
				if err := f.step(p.IDs[pos:pos+n], pos, 0, dense.Weights, nil); err != nil {
					t.Fatal(err)
				}
				for i := range n {
					row := make([]float32, g.Vocab)
					if err := f.G.Logits(row, i); err != nil {
						t.Fatal(err)
					}
					got[pos+i] = row
				}
			}
			var worst float64
			for i, pos := range p.LogitsPositions {
				for j := range g.Vocab {
					worst = max(worst, math.Abs(float64(got[pos][j]-want[i*g.Vocab+j])))
				}
			}
			t.Logf("%s, chunks of %d: largest difference %.2g of std(logits)", p.Name, chunk, worst/p.LogitsStd)
			if !(worst <= 1e-4*p.LogitsStd) {
				t.Errorf("%s, chunks of %d: logits differ by %g, std is %g", p.Name, chunk, worst, p.LogitsStd)
			}
		}
	}
}
