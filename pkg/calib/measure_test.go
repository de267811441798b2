package calib

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"substrate/pkg/arch"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
)

// testData makes sequences from the golden prompts of a model.
func testData(t *testing.T, m *model.Model, g *golden) *Data {
	t.Helper()
	d := &Data{Part: doc.DataPart{Name: "test", Part: PartFit, SHA256: m.Profile().HeaderSHA256}}
	for i, p := range g.Prompts {
		d.Documents = append(d.Documents, Document{Name: p.Name})
		ids := p.IDs[:min(len(p.IDs), 40)]
		d.Sequences = append(d.Sequences, Sequence{Document: i, IDs: ids})
		d.Part.Tokens += int64(len(ids) - 1)
	}
	return d
}

func measureGolden(t *testing.T, m *model.Model, data *Data, levels ...string) (*doc.Table, *quant.Stats) {
	t.Helper()
	b := ref.Open(2)
	defer b.Close()
	encodings, ls, err := LevelSpec{Levels: levels, Group: 32, Scale: "bf16", Fit: "lsq"}.Expand()
	if err != nil {
		t.Fatal(err)
	}
	table, stats, err := Measure(context.Background(), b, m, data, MeasureOptions{
		Encodings: encodings, Levels: ls, Threads: 2, Progress: func(int, int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table, stats
}

func TestMeasure(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if base := filepath.Base(dir); base != "qwen3moe" && base != "llama-gqa" {
			t.Skip("two families are enough")
		}
		data := testData(t, m, g)
		table, stats := measureGolden(t, m, data, "2", "8", "2+4")
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		if again, _ := measureGolden(t, m, data, "2", "8", "2+4"); !reflect.DeepEqual(table, again) {
			t.Error("a second measurement gives another table")
		}
		if table.Floor > 1e-6 {
			t.Errorf("the reference is %g away from itself", table.Floor)
		}
		p, mass := m.Profile(), map[int]float64{}
		for i := range table.Items {
			it := &table.Items[i]
			kl := map[string]float64{}
			for _, l := range it.Levels {
				kl[l.Level] = l.KL
			}
			two, eight, stacked := kl["q2g32-bf16-lsq1"], kl["q8g32-bf16-lsq1"], kl["q2g32-bf16-lsq1+r4g32-bf16-lsq1"]
			if two == 0 && eight == 0 {
				continue // nothing but kept tensors, or an expert that no token reached
			}
			if !(eight < two/20 && stacked < two/3) {
				t.Errorf("%s: KL %g at 2 bits, %g at 8, %g at 2+4", it.Op, two, eight, stacked)
			}
			for j := range p.Ops {
				if op := &p.Ops[j]; op.ID == it.Op && op.Kind == doc.KindMoEExpert {
					mass[op.Layer] += it.GateMass
				}
			}
		}
		for layer, sum := range mass {
			if math.Abs(sum-1) > 1e-6 {
				t.Errorf("layer %d: gate masses add up to %g", layer, sum)
			}
		}
		// Moments are means of squares of what the products read.
		for i := range p.Ops {
			if op := &p.Ops[i]; op.Kind == doc.KindAttention {
				if mo, err := stats.Moments(op.ID, doc.RoleO, p.Architecture.Heads*p.Architecture.HeadDim); err != nil || mo == nil {
					t.Errorf("%s: no moments of the input of o: %v", op.ID, err)
				}
			}
		}
	})
}

// TestBranchFromTheMiddle compares a branch that starts at a saved residual
// stream with a full run of the same weights.
func TestBranchFromTheMiddle(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if filepath.Base(dir) != "qwen3moe-mixed" {
			t.Skip("one model has every kind of stage")
		}
		b := ref.Open(2)
		defer b.Close()
		data, p := testData(t, m, g), m.Profile()
		reference, err := LoadDense(context.Background(), b, m, func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewForward(b, p, data.Longest(), "f32")
		if err != nil {
			t.Fatal(err)
		}
		ms := &measurement{b: b, p: p, data: data, dense: reference, f: f, coded: map[string][]*dense{},
			s: scorer{vocab: p.Architecture.VocabSize, threads: 2}}
		if err := ms.reference(context.Background()); err != nil {
			t.Fatal(err)
		}
		// Zero one op's first matrix and score from its stage, and from the start.
		for _, stage := range []int{1, 4, len(f.stages) - 1} {
			op := f.stages[stage].op
			if f.stages[stage].kind == doc.KindLMHead {
				op = owner(p, f.stages[stage].head)
			}
			saved := reference.Tensor(op, 0)
			before := append([]float32(nil), saved...)
			for i := range saved {
				saved[i] *= 1.1
			}
			w := func(i int) *arch.Weights { return reference.Weights(i) }
			fromStage, err := ms.branch(stage, w)
			if err != nil {
				t.Fatal(err)
			}
			full, err := ms.branch(0, w)
			if err != nil {
				t.Fatal(err)
			}
			if stage < len(f.stages)-1 && !reflect.DeepEqual(fromStage, full) {
				t.Errorf("stage %d: branch scores %v, the full run %v", stage, fromStage[0].KL, full[0].KL)
			}
			if full[0].KL == 0 {
				t.Errorf("stage %d: changed weights score no KL", stage)
			}
			copy(saved, before)
		}
	})
}
