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
	p := newProfile(id, family, &a, huggingFaceNames{})
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
	kv := int64(2) * int64(a.KVHeads) * int64(a.HeadDim)
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
	b.add(doc.OpEmbedding, doc.KindEmbedding, -1, -1, b.matrix(doc.RoleWeight, a.VocabSize, a.HiddenSize))
	b.ops[0].FlopsPerToken = 0 // a row is looked up
	moe := a.MoELayers
	for layer := range a.Layers {
		b.attention(layer)
		if len(moe) > 0 && moe[0] == layer {
			moe = moe[1:]
			b.moe(layer)
		} else {
			b.mlp(layer)
		}
	}
	b.add(doc.OpFinalNorm, doc.KindNorm, -1, -1, b.vector(doc.RoleWeight, a.HiddenSize))
	if a.TiedEmbedding {
		b.add(doc.OpLMHead, doc.KindLMHead, -1, -1)
		head := &b.ops[len(b.ops)-1]
		head.Shares = doc.OpEmbedding
		head.FlopsPerToken = 2 * int64(a.VocabSize) * int64(a.HiddenSize)
	} else {
		b.add(doc.OpLMHead, doc.KindLMHead, -1, -1, b.matrix(doc.RoleWeight, a.VocabSize, a.HiddenSize))
	}
	return b.ops
}

func (b *opBuilder) attention(layer int) {
	a := b.arch
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	tensors := []doc.Tensor{
		b.vector(doc.RoleNorm, a.HiddenSize),
		b.matrix(doc.RoleQ, q, a.HiddenSize),
		b.matrix(doc.RoleK, kv, a.HiddenSize),
		b.matrix(doc.RoleV, kv, a.HiddenSize),
		b.matrix(doc.RoleO, a.HiddenSize, q),
	}
	if a.AttentionBias {
		tensors = append(tensors, b.vector(doc.RoleQBias, q), b.vector(doc.RoleKBias, kv), b.vector(doc.RoleVBias, kv))
	}
	if a.AttentionOBias {
		tensors = append(tensors, b.vector(doc.RoleOBias, a.HiddenSize))
	}
	if a.QKNorm {
		tensors = append(tensors, b.vector(doc.RoleQNorm, a.HeadDim), b.vector(doc.RoleKNorm, a.HeadDim))
	}
	b.add(blockOp(layer, "attn"), doc.KindAttention, layer, -1, tensors...)
}

func (b *opBuilder) mlp(layer int) {
	a := b.arch
	b.add(blockOp(layer, "mlp"), doc.KindMLPDense, layer, -1,
		b.vector(doc.RoleNorm, a.HiddenSize),
		b.matrix(doc.RoleGate, a.IntermediateSize, a.HiddenSize),
		b.matrix(doc.RoleUp, a.IntermediateSize, a.HiddenSize),
		b.matrix(doc.RoleDown, a.HiddenSize, a.IntermediateSize))
}

func (b *opBuilder) moe(layer int) {
	a := b.arch
	router := b.matrix(doc.RoleWeight, a.Experts, a.HiddenSize)
	router.Keep = true
	b.add(blockOp(layer, "router"), doc.KindMoERouter, layer, -1, b.vector(doc.RoleNorm, a.HiddenSize), router)
	b.add(blockOp(layer, "moe"), doc.KindMoEDispatch, layer, -1)
	// The weighted sum of the experts' outputs.
	b.ops[len(b.ops)-1].FlopsPerToken = 2 * int64(a.ExpertsPerToken) * int64(a.HiddenSize)
	for expert := range a.Experts {
		b.add(blockOp(layer, "expert_"+strconv.Itoa(expert)), doc.KindMoEExpert, layer, expert,
			b.matrix(doc.RoleGate, a.ExpertSize, a.HiddenSize),
			b.matrix(doc.RoleUp, a.ExpertSize, a.HiddenSize),
			b.matrix(doc.RoleDown, a.HiddenSize, a.ExpertSize))
	}
}

// add appends an op and gives its tensors their places in the checkpoint.
//
// Flops are two per weight of every matrix. What grows with the context, and
// the elementwise rest, is left out.
func (b *opBuilder) add(id string, kind doc.Kind, layer, expert int, tensors ...doc.Tensor) {
	op := doc.Op{ID: id, Kind: kind, Layer: layer, Expert: expert, Tensors: tensors}
	for i := range tensors {
		t := &tensors[i]
		t.Source = b.names.source(&op, t.Role)
		op.Parameters += int64(t.Rows) * int64(t.Cols)
		if t.Rows > 1 {
			op.FlopsPerToken += 2 * int64(t.Rows) * int64(t.Cols)
		}
	}
	b.ops = append(b.ops, op)
}

func (b *opBuilder) matrix(role string, rows, cols int) doc.Tensor {
	return doc.Tensor{Role: role, Rows: rows, Cols: cols}
}

func (b *opBuilder) vector(role string, n int) doc.Tensor {
	return doc.Tensor{Role: role, Rows: 1, Cols: n, Keep: true}
}

func blockOp(layer int, name string) string { return fmt.Sprintf("block_%d.%s", layer, name) }
