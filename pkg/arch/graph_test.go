package arch_test

import (
	"strings"
	"testing"

	"substrate/pkg/arch"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
)

var tiny = doc.Architecture{
	HiddenSize: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 32, VocabSize: 50, ContextTokens: 128, NormEps: 1e-5,
	IntermediateSize: 96, Experts: 4, ExpertsPerToken: 2, ExpertSize: 32, MoELayers: []int{1},
	RoPE: doc.RoPE{Theta: 1e4, Type: "default"},
}

func TestBeginRefusesWhatDoesNotFit(t *testing.T) {
	b := ref.Open(1)
	defer b.Close()
	g, err := arch.New(b, &tiny, arch.Options{Context: 10, KVType: "f32", Chunk: 4, LogitRows: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ids  []int32
		pos  int
		want string
	}{
		{nil, 0, "step of 0 tokens"},
		{[]int32{1, 2, 3, 4, 5}, 0, "step of 5 tokens"},
		{[]int32{1, 2}, 9, "do not fit a context of 10"},
		{[]int32{1}, -1, "do not fit"},
		{[]int32{50}, 0, "outside the vocabulary"},
		{[]int32{-1}, 0, "outside the vocabulary"},
	} {
		if err := g.Begin(c.ids, c.pos); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Begin(%v, %d): %v, want %q", c.ids, c.pos, err, c.want)
		}
	}
	if err := g.Begin([]int32{1, 2}, 8); err != nil {
		t.Errorf("the last two positions: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	b := ref.Open(1)
	defer b.Close()
	for _, o := range []arch.Options{
		{Context: 0, KVType: "f32", Chunk: 1, LogitRows: 1},
		{Context: 8, KVType: "f32", Chunk: 1, LogitRows: 2},
		{Context: 8, KVType: "q1", Chunk: 1, LogitRows: 1},
	} {
		if _, err := arch.New(b, &tiny, o); err == nil {
			t.Errorf("New(%+v) succeeds", o)
		}
	}
	a := tiny
	a.RoPE.Type = "longrope"
	if _, err := arch.New(b, &a, arch.Options{Context: 8, KVType: "f32", Chunk: 1, LogitRows: 1}); err == nil || !strings.Contains(err.Error(), "longrope") {
		t.Errorf("rope type longrope: %v", err)
	}
}

// TestRegisterBytes compares the formula, which plans are made from, with
// what a graph takes.
func TestRegisterBytes(t *testing.T) {
	b := ref.Open(1)
	defer b.Close()
	o := arch.Options{Context: 16, KVType: "f32", Chunk: 8, LogitRows: 8}
	want := int64(8) * (2*64 + 64 + 32 + 32 + 64 + 50 + 96 + 96 + 2*64) * 4
	if got := arch.RegisterBytes(&tiny, o); got != want {
		t.Errorf("RegisterBytes = %d, want %d", got, want)
	}
}

func TestBindRefuses(t *testing.T) {
	b := ref.Open(1)
	defer b.Close()
	slab, err := b.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer slab.Free()
	q := doc.TensorLayout{Role: "q", Rows: 4, Cols: 64, DType: "f32"}
	part := func(ts ...doc.TensorLayout) arch.Part {
		return arch.Part{Slab: slab, Layout: &doc.RecordLayout{Bytes: 4096, Tensors: ts}}
	}
	norm := doc.TensorLayout{Role: "norm", Rows: 1, Cols: 64, DType: "f32", Data: 2048}
	for name, parts := range map[string][]arch.Part{
		"unknown role":      {part(doc.TensorLayout{Role: "z", Rows: 4, Cols: 64, DType: "f32"})},
		"unknown type":      {part(doc.TensorLayout{Role: "q", Rows: 4, Cols: 64, DType: "f8"})},
		"vector in 16 bits": {part(doc.TensorLayout{Role: "norm", Rows: 1, Cols: 64, DType: "bf16"})},
		"residual vector":   {part(q, norm), part(norm)},
		"four parts":        {part(q), part(q), part(q), part(q)},
		"beyond the slab":   {part(doc.TensorLayout{Role: "q", Rows: 4096, Cols: 64, DType: "f32"})},
	} {
		if _, err := arch.Bind(b, doc.KindAttention, parts...); err == nil {
			t.Errorf("%s: Bind succeeds", name)
		}
	}
	if _, err := arch.Bind(b, doc.KindAttention, part(q, norm), part(q)); err != nil {
		t.Errorf("a skeleton and a residual: %v", err)
	}
}
