package calib

import (
	"context"
	"math"
	"testing"

	"substrate/pkg/backend/ref"
	"substrate/pkg/model"
)

// TestFormatsGiveOneResult runs one model from a folder of safetensors and
// from GGUF files with the same weights.
func TestFormatsGiveOneResult(t *testing.T) {
	ids := []int32{5, 200, 31, 7, 99, 260, 12, 12, 40}
	for _, paths := range [][2]string{
		{goldenModels + "/qwen2", "../model/testdata/qwen2-00001-of-00003.gguf"},
	} {
		want, got := logitBits(t, paths[0], ids), logitBits(t, paths[1], ids)
		if len(want) == 0 || len(want) != len(got) {
			t.Fatalf("%d and %d logits", len(want), len(got))
		}
		for i := range want {
			if want[i] != got[i] {
				t.Fatalf("%s: logit %d is %v, in %s %v", paths[1], i, math.Float32frombits(got[i]), paths[0], math.Float32frombits(want[i]))
			}
		}
	}
}

// logitBits returns the bits of the logits at every position.
func logitBits(t *testing.T, path string, ids []int32) []uint32 {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := ref.Open(1)
	defer b.Close()
	dense, err := LoadDense(context.Background(), b, m, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer dense.Free()
	f, err := NewForward(b, m.Profile(), len(ids), "f32")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(ids, 0, dense.Weights, nil); err != nil {
		t.Fatal(err)
	}
	var bits []uint32
	row := make([]float32, m.Profile().Architecture.VocabSize)
	for i := range ids {
		if err := f.G.Logits(row, i); err != nil {
			t.Fatal(err)
		}
		for _, v := range row {
			bits = append(bits, math.Float32bits(v))
		}
	}
	return bits
}
