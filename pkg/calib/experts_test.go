package calib

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"gonum.org/v1/gonum/stat"

	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
)

// The split of a layer's loss among its experts is what coding each expert by
// itself measures, where that can be measured.
func TestExpertSharesAreEachExpertsLoss(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if filepath.Base(dir) != "qwen3moe" {
			t.Skip("one mixture is enough")
		}
		ctx := context.Background()
		b := ref.Open(2)
		defer b.Close()
		data, p := testData(t, m, g), m.Profile()
		encodings, levels, err := LevelSpec{Levels: []string{"3"}, Group: 32, Scale: "bf16", Fit: "minmax"}.Expand()
		if err != nil {
			t.Fatal(err)
		}
		ms, err := newMeasurement(b, m, data, MeasureOptions{Encodings: encodings, Levels: levels, Threads: 2, Progress: func(int, int) {}})
		if err != nil {
			t.Fatal(err)
		}
		for _, gr := range ms.groups() {
			if len(gr.ops) == 1 {
				continue
			}
			at := func(ops []int) *variant {
				return &variant{name: "experts", from: gr.stage, f: ms.f, level: func(op *doc.Op) *doc.Level {
					for _, i := range ops {
						if p.Ops[i].ID == op.ID {
							return &levels[0]
						}
					}
					return nil
				}}
			}
			all := at(gr.ops)
			all.split = &gr
			variants := []*variant{all}
			for _, one := range gr.ops {
				variants = append(variants, at([]int{one}))
			}
			if err := ms.measure(ctx, data, variants, true); err != nil {
				t.Fatal(err)
			}
			shares := all.score.shares
			var each []float64
			var sum float64
			for _, v := range variants[1:] {
				kl, _ := Mean(v.score.docs)
				each = append(each, kl)
				sum += kl
			}
			total := 0.0
			for e := range shares {
				total += shares[e]
				t.Logf("layer %d, expert %d: share %.4f, by itself %.4f", p.Ops[gr.ops[0]].Layer, e, shares[e], each[e]/sum)
			}
			if r := stat.Correlation(shares, each, nil); math.Abs(total-1) > 1e-9 || r < 0.7 {
				t.Errorf("layer %d: shares add up to %g, correlation %.3f with each expert's own loss", p.Ops[gr.ops[0]].Layer, total, r)
			}
		}
	})
}

// An expert that nobody asked for is not free.
func TestShrinkHasNoFreeExpert(t *testing.T) {
	shares := shrink([]float64{8, 2, 0}, []float64{400, 100, 0})
	if !(shares[0] > shares[1] && shares[1] > shares[2] && shares[2] > 0 && shares[2] < 0.01) {
		t.Errorf("shares %v", shares)
	}
	if got := shrink([]float64{0, 0}, []float64{0, 0}); got[0] != 0.5 {
		t.Errorf("shares of nothing: %v", got)
	}
}
