package synth

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"substrate/pkg/model"
)

// The values of a made-up model are those of its checkpoint, in whatever
// order and by however many they are read.
func TestModelIsItsCheckpoint(t *testing.T) {
	for _, weights := range []string{"bf16", "f32"} {
		shape := Shape{Layers: 2, Hidden: 64, Heads: 2, Vocab: 600, Experts: 3, TopK: 2, ExpertSize: 32, Weights: weights}
		dir := filepath.Join(t.TempDir(), "checkpoint")
		if err := Checkpoint(context.Background(), dir, shape, Weights{Seed: 5}); err != nil {
			t.Fatal(err)
		}
		file, err := model.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		made, err := NewModel(shape, Weights{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for i := range file.Profile().Ops {
			op := &file.Profile().Ops[i]
			for j := range op.Tensors {
				wait.Go(func() {
					tensor := &op.Tensors[j]
					half := tensor.Rows / 2
					rest := tensor.Rows - half
					want, got := make([]float32, rest*tensor.Cols), make([]float32, rest*tensor.Cols)
					if err := file.ReadRows(want, tensor, half, rest); err != nil {
						t.Error(err)
					}
					if err := made.ReadRows(got, &made.Profile().Ops[i].Tensors[j], half, rest); err != nil {
						t.Error(err)
					}
					if !slices.Equal(want, got) {
						t.Errorf("%s %s %s: rows differ from the checkpoint's", weights, op.ID, tensor.Role)
					}
				})
			}
		}
		wait.Wait()
	}
}
