package model

import (
	"fmt"
	"strconv"

	"substrate/pkg/doc"
)

// NewProfile describes a model of the given family and architecture whose
// weights all have one type ("bf16", "f16", "f32") and Hugging Face names.
func NewProfile(id, family string, a doc.Architecture, weights string) (*doc.Profile, error) {
	d, err := parseDType(weights)
	if err != nil {
		return nil, err
	}
	if err := checkArchitecture(id, &a); err != nil {
		return nil, err
	}
	p := newProfile(id, family, &a, namesOf(family, &a))
	for i := range p.Ops {
		for j := range p.Ops[i].Tensors {
			p.Ops[i].Tensors[j].DType = d.String()
		}
	}
	p.Reference = d.reference()
	return p, validate(id, p)
}

// validate refuses a model that no document could hold.
func validate(file string, p *doc.Profile) error {
	if err := p.Validate(); err != nil {
		return &Error{File: file, Offset: -1, Reason: err.Error()}
	}
	return nil
}

// newProfile builds everything but what the tensors' headers say.
func newProfile(id, family string, a *doc.Architecture, names naming) *doc.Profile {
	p := &doc.Profile{
		Format:       doc.FormatProfile,
		ModelID:      id,
		Family:       family,
		Architecture: *a,
		Ops:          buildOps(a, names),
	}
	kv := a.CacheValues()
	p.KVCaches = []doc.KVCache{
		{Type: "f32", BytesPerTokenPerLayer: 4 * kv},
		{Type: "f16", BytesPerTokenPerLayer: 2 * kv},
	}
	for i := range p.Ops {
		p.Parameters = addParameters(p.Parameters, p.Ops[i].Parameters)
	}
	return p
}

// addParameters adds and stays negative once the sum left int64.
func addParameters(a, b int64) int64 {
	if a < 0 || b < 0 || a > doc.MaxInteger {
		return -1
	}
	return a + b
}

// opBuilder makes the ops of one model, in topological order.
type opBuilder struct {
	arch  *doc.Architecture
	names naming
	ops   []doc.Op
}

func buildOps(a *doc.Architecture, names naming) []doc.Op {
	b := &opBuilder{arch: a, names: names}
	b.add(doc.OpEmbedding, doc.KindEmbedding, -1, -1)
	b.ops[0].FlopsPerToken = 0 // a row is looked up
	moe := a.MoELayers
	for layer := range a.Layers {
		b.add(blockOp(layer, "attn"), doc.KindAttention, layer, -1)
		if len(moe) > 0 && moe[0] == layer {
			moe = moe[1:]
			b.moe(layer)
		} else {
			b.add(blockOp(layer, "mlp"), doc.KindMLPDense, layer, -1)
		}
	}
	b.add(doc.OpFinalNorm, doc.KindNorm, -1, -1)
	b.add(doc.OpLMHead, doc.KindLMHead, -1, -1)
	if head := &b.ops[len(b.ops)-1]; a.TiedEmbedding {
		head.Shares, head.Tensors, head.Parameters = doc.OpEmbedding, nil, 0
	}
	return b.ops
}

// moe adds a layer's router and experts. The shared ones, which every token
// passes, are one op.
func (b *opBuilder) moe(layer int) {
	a := b.arch
	b.add(blockOp(layer, "router"), doc.KindMoERouter, layer, -1)
	b.add(blockOp(layer, "moe"), doc.KindMoEDispatch, layer, -1)
	// The weighted sum of the experts' outputs.
	b.ops[len(b.ops)-1].FlopsPerToken = 2 * int64(a.ExpertsPerToken) * int64(a.HiddenSize)
	if a.SharedSize > 0 {
		b.add(blockOp(layer, "shared"), doc.KindMoEShared, layer, -1)
	}
	for expert := range a.Experts {
		b.add(blockOp(layer, "expert_"+strconv.Itoa(expert)), doc.KindMoEExpert, layer, expert)
	}
}

// add appends an op and gives its tensors their places in the checkpoint.
//
// Flops are two per weight of every matrix. What grows with the context, and
// the elementwise rest, is left out.
func (b *opBuilder) add(id string, kind doc.Kind, layer, expert int) {
	op := doc.Op{ID: id, Kind: kind, Layer: layer, Expert: expert}
	for _, s := range b.arch.Shapes(kind) {
		t := doc.Tensor{Role: s.Role, Rows: s.Rows, Cols: s.Cols, Keep: s.Keep}
		t.Source = b.names.source(&op, t.Role)
		op.Parameters += int64(t.Rows) * int64(t.Cols)
		if t.Rows > 1 {
			op.FlopsPerToken += 2 * int64(t.Rows) * int64(t.Cols)
		}
		op.Tensors = append(op.Tensors, t)
	}
	b.ops = append(b.ops, op)
}

func blockOp(layer int, name string) string { return fmt.Sprintf("block_%d.%s", layer, name) }
