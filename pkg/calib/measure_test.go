package calib

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"testing"

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

// A sweep scores what whole runs of the same weights score, one variant after
// another, however few streams there is memory for.
func TestSweepIsWholeRuns(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if base := filepath.Base(dir); base != "qwen3moe-mixed" && base != "llama-gqa" {
			t.Skip("these have every kind of stage, and a tied embedding")
		}
		ctx := context.Background()
		b := ref.Open(2)
		defer b.Close()
		data, p := testData(t, m, g), m.Profile()
		encodings, levels, err := LevelSpec{Levels: []string{"2+2"}, Group: 32, Scale: "bf16", Fit: "lsq"}.Expand()
		if err != nil {
			t.Fatal(err)
		}
		sweep := func(opt MeasureOptions) (*measurement, []*variant) {
			opt.Encodings, opt.Levels, opt.Threads, opt.Progress = encodings, levels, 2, func(int, int) {}
			ms, err := newMeasurement(b, m, data, opt)
			if err != nil {
				t.Fatal(err)
			}
			variants := ms.itemVariants()
			if err := ms.measure(ctx, data, variants, true); err != nil {
				t.Fatal(err)
			}
			return ms, variants
		}
		ms, variants := sweep(MeasureOptions{})
		exact, err := LoadDense(ctx, b, m, func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		defer exact.Free()
		ms.coder.enc.Source, ms.coder.encodings["f32"] = m, &denseEncoding
		c := &comparison{b: b, p: p, ref: exact, data: data, s: scorer{vocab: p.Architecture.VocabSize, threads: 2}, opt: VerifyOptions{Progress: func(int, int) {}}}
		if c.rf, err = NewForward(b, p, data.Longest(), "f32"); err != nil {
			t.Fatal(err)
		}
		c.mf = c.rf
		for _, v := range variants {
			coded, err := LoadCoded(ctx, b, p, func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
				level := v.level(op)
				if level == nil {
					return ms.coder.records(ctx, op, &doc.Level{ID: "f32", Encodings: []string{"f32"}})
				}
				return ms.coder.records(ctx, op, level)
			})
			if err != nil {
				t.Fatal(err)
			}
			docs, err := c.scores(ctx, []logits{c.whole(coded)})
			coded.Free()
			if err != nil {
				t.Fatal(err)
			}
			want, _ := Mean(docs[0])
			got, _ := Mean(v.score.docs)
			if math.Abs(got-want) > 1e-7+1e-4*want || (v.name != "reference") != (got > 1e-6) {
				t.Errorf("%s: KL %g, a whole run has %g", v.name, got, want)
			}
		}
		// With memory for five streams, and with all of them on disk.
		stream := newStreamPool(data, p.Architecture.HiddenSize, 0, 0, "").bytes()
		for _, opt := range []MeasureOptions{
			{WorkRAM: ms.stageBytes(data) + 12*stream},
			{WorkRAM: ms.stageBytes(data), SpillMax: 12 * stream, SpillDir: t.TempDir()},
		} {
			_, again := sweep(opt)
			for i, v := range again {
				if !reflect.DeepEqual(v.score, variants[i].score) {
					t.Errorf("%s: another score in %d bytes", v.name, opt.WorkRAM)
				}
			}
		}
	})
}
