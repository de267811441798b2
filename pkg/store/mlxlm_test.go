package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
	"substrate/pkg/store"
	"substrate/pkg/store/mlxlm"
)

// exports has what the test below writes, and what mlx-lm computes from it
// (scripts/make_mlx_goldens.py --exports): pkg/calib computes the same.
const exports = "../../testdata/mlx_lm/exports"

// manyWidths gives neighbours different encodings: every width of MLX, experts
// of several, and matrices that stay dense.
func manyWidths(op *doc.Op) ladder {
	coded := func(bits, group int) ladder {
		e := doc.Encoding{Bits: bits, Group: group, Scale: "bf16", Fit: "lsq", FitVersion: 1}
		e.ID = doc.EncodingID(&e)
		return ladder{{e}}
	}
	switch op.Kind {
	case doc.KindEmbedding:
		return coded(6, 32)
	case doc.KindLMHead:
		return coded(8, 64)
	case doc.KindAttention:
		return coded(5-op.Layer%2*2, 32)
	case doc.KindMLPDense:
		return coded(4, 32)
	case doc.KindMoEExpert:
		return coded([]int{2, 4, 3}[op.Expert%3], []int{32, 64}[op.Expert%2])
	}
	return ladder{{bf}}
}

func exportStore(t *testing.T, modelPath string, ladderOf func(*doc.Op) ladder) (*model.Model, *store.Store) {
	t.Helper()
	m := openModel(t, modelPath)
	s := spec(t, m, makePlan(t, m.Profile(), ladderOf, nil))
	s.Texts = nil
	for _, name := range []string{"config.json", "tokenizer.json"} {
		b, err := os.ReadFile(filepath.Join(modelPath, name))
		if err != nil {
			t.Fatal(err)
		}
		s.Texts = append(s.Texts, store.Text{File: name, Data: b})
	}
	path := filepath.Join(t.TempDir(), "m.sb")
	write(t, newBuild(t, s), path, options(m))
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return m, st
}

// Our reader of folders that MLX quantized finds in an export the values of the
// store, and the export is the one that mlx-lm was asked about.
func TestMLXExport(t *testing.T) {
	for _, path := range []string{denseModel, moeModel} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, s := exportStore(t, path, manyWidths)
			dir := filepath.Join(t.TempDir(), "mlx")
			summary, err := mlxlm.Export(context.Background(), s, dir, mlxlm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if moe := path == moeModel; (len(summary.Widened) > 0) != moe {
				t.Errorf("widened %q", summary.Widened)
			}
			sameValues(t, s, dir)
			golden := filepath.Join(exports, filepath.Base(path))
			if *update {
				os.RemoveAll(golden)
				if err := os.CopyFS(golden, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
			}
			sameFolders(t, folder(t, dir), folder(t, golden))
		})
	}
}

// sameValues compares each tensor of a store's default level with what the
// folder has.
func sameValues(t *testing.T, s *store.Store, dir string) {
	t.Helper()
	exported := openModel(t, dir)
	plan, err := s.Plan("")
	if err != nil {
		t.Fatal(err)
	}
	ops := exported.Profile().Ops
	compared := 0
	for i := range plan.OpBundles {
		b := &plan.OpBundles[i]
		op := &ops[slices.IndexFunc(ops, func(o doc.Op) bool { return o.ID == b.Op })]
		r := plan.Record(b.Tiers[0].Requires[0])
		raw := make([]byte, s.Layout(r).Bytes)
		if err := s.Read(raw, r); err != nil {
			t.Fatal(err)
		}
		for j := range op.Tensors {
			tensor := &op.Tensors[j]
			got, want := make([]float32, tensor.Rows*tensor.Cols), make([]float32, tensor.Rows*tensor.Cols)
			if err := exported.ReadRows(got, tensor, 0, tensor.Rows); err != nil {
				t.Fatal(err)
			}
			if err := quant.Dequantize(want, tensor.Role, quant.Record{Layout: s.Layout(r), Bytes: raw}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("op %s, role %s: other values", op.ID, tensor.Role)
			}
			compared++
		}
	}
	if compared < 10 {
		t.Errorf("only %d tensors compared", compared)
	}
}

// A checkpoint that MLX quantized is packed bit for bit where the plan asks for
// the encoding that it has, whatever the fit, and fitted where it asks for
// another.
func TestMLXSourceIsKept(t *testing.T) {
	for _, path := range []string{denseModel, moeModel} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, s := exportStore(t, path, func(op *doc.Op) ladder {
				if op.Kind == doc.KindMoEExpert {
					return ladder{{q4}} // not widened
				}
				return manyWidths(op)
			})
			dir := filepath.Join(t.TempDir(), "mlx")
			if _, err := mlxlm.Export(context.Background(), s, dir, mlxlm.Options{}); err != nil {
				t.Fatal(err)
			}
			minmax := func(op *doc.Op) ladder {
				if op.Kind == doc.KindMoEExpert {
					return ladder{{coded(4, "minmax", false)}}
				}
				l := manyWidths(op)
				e := &l[0][0]
				if e.Bits < 16 && op.Kind != doc.KindLMHead {
					e.Fit = "minmax"
					e.ID = doc.EncodingID(e)
				}
				if op.Kind == doc.KindLMHead {
					return ladder{{q4}} // has 8 bits
				}
				return l
			}
			_, again := exportStore(t, dir, minmax)
			kept, fitted := 0, 0
			for i := range s.Manifest().Records {
				a := &s.Manifest().Records[i]
				for j := range again.Manifest().Records {
					b := &again.Manifest().Records[j]
					if a.ID != b.ID {
						continue
					}
					if a.CRC32C == b.CRC32C {
						kept++
					} else if fitted++; a.Op != doc.OpLMHead {
						t.Errorf("record %q has other bytes", a.ID)
					}
				}
			}
			if all := len(s.Manifest().Records); kept+fitted != all || kept < 5 || fitted > 1 {
				t.Errorf("of %d records %d kept, %d fitted", all, kept, fitted)
			}
		})
	}
}

func TestMLXExportConfig(t *testing.T) {
	_, s := exportStore(t, moeModel, manyWidths)
	dir := filepath.Join(t.TempDir(), "mlx")
	if _, err := mlxlm.Export(context.Background(), s, dir, mlxlm.Options{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Theta        float64                    `json:"rope_theta"`
		Quantization map[string]jsonio.RawValue `json:"quantization"`
	}
	if err := jsonio.UnmarshalLoose("config.json", b, &config); err != nil {
		t.Fatal(err)
	}
	if want := s.Manifest().Profile.Architecture.RoPE.Theta; config.Theta != want {
		t.Errorf("rope_theta %g, want %g", config.Theta, want)
	}
	for path, want := range map[string]string{
		"bits": "4", "group_size": "32", "mode": `"affine"`, "model.embed_tokens": `{"group_size":32,"bits":6}`,
		"model.layers.1.self_attn.k_proj": `{"group_size":32,"bits":3}`,
	} {
		got := config.Quantization[path]
		if !jsonio.Equal(got, jsonio.RawValue(want)) {
			t.Errorf("quantization of %s is %s, want %s", path, got, want)
		}
	}
}

func TestMLXExportRefuses(t *testing.T) {
	m, s := exportStore(t, moeModel, mixed)
	dir := t.TempDir()
	refused := func(s *store.Store, path, want string) {
		t.Helper()
		if _, err := mlxlm.Export(context.Background(), s, path, mlxlm.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refused(s, dir, "is there already")
	added := makePlan(t, m.Profile(), func(op *doc.Op) ladder {
		if op.Kind == doc.KindMoEExpert {
			return ladder{{q2, r3}}
		}
		return mixed(op)[:1]
	}, nil)
	path := filepath.Join(dir, "added.sb")
	write(t, newBuild(t, spec(t, m, added)), path, options(m))
	sums, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	refused(sums, filepath.Join(dir, "x"), `op "block_0.expert_0" of plan "default" adds up 2 records`)
	_, dense := exportStore(t, moeModel, func(op *doc.Op) ladder {
		if op.Kind == doc.KindMoEExpert && op.Expert == 1 {
			return ladder{{bf}}
		}
		return manyWidths(op)
	})
	refused(dense, filepath.Join(dir, "x"), "mlx-lm has one tensor for all")
	// An error leaves nothing.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := mlxlm.Export(ctx, s, filepath.Join(dir, "x"), mlxlm.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"x", "x.partial"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was left behind", name)
		}
	}
}
