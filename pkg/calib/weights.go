package calib

import (
	"context"
	"fmt"
	"unsafe"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Source reads a model's tensors as float32, row-major, at reference
// precision. *model.Model is one.
type Source interface {
	Profile() *doc.Profile
	ReadTensor(dst []float32, t *doc.Tensor) error
}

// denseEncoding stores every tensor as float32.
var denseEncoding = doc.Encoding{ID: "f32", Bits: 32, Fit: "none"}

// dense is an op's record in float32, in its own slab.
type dense struct {
	op      *doc.Op
	slab    backend.Slab
	layout  doc.RecordLayout
	weights *arch.Weights
}

func newDense(b backend.Backend, op *doc.Op) (*dense, error) {
	layout, err := footprint.Layout(op, &denseEncoding)
	if err != nil {
		return nil, err
	}
	d := &dense{op: op, layout: layout}
	if d.slab, err = b.Alloc(layout.Bytes); err != nil {
		return nil, fmt.Errorf("op %s: %w", op.ID, err)
	}
	if d.weights, err = arch.Bind(b, op.Kind, arch.Part{Slab: d.slab, Layout: &d.layout}); err != nil {
		return nil, fmt.Errorf("op %s: %w", op.ID, err)
	}
	return d, nil
}

// values is the memory of tensor i as float32.
func (d *dense) values(i int) []float32 {
	t := &d.layout.Tensors[i]
	b := d.slab.Bytes()[t.Data:]
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), t.Rows*t.Cols)
}

// Dense is a whole model in memory in float32: the reference.
type Dense struct {
	p   *doc.Profile
	ops []*dense // by op index; nil for ops without tensors, shared for a tied head
}

// LoadDense reads every tensor of src.
func LoadDense(ctx context.Context, b backend.Backend, src Source, progress func(done, total int64)) (*Dense, error) {
	p := src.Profile()
	m := &Dense{p: p, ops: make([]*dense, len(p.Ops))}
	var done int64
	for i := range p.Ops {
		op := &p.Ops[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o := owner(p, i); o != i {
			m.ops[i] = m.ops[o]
			continue
		}
		if len(op.Tensors) == 0 {
			continue
		}
		d, err := newDense(b, op)
		if err != nil {
			return nil, err
		}
		for j := range op.Tensors {
			if err := src.ReadTensor(d.values(j), &op.Tensors[j]); err != nil {
				return nil, fmt.Errorf("op %s: %w", op.ID, err)
			}
		}
		m.ops[i] = d
		done += op.Parameters
		progress(done, p.Parameters)
	}
	return m, nil
}

// Weights is the Lookup of the reference.
func (m *Dense) Weights(op int) *arch.Weights { return m.ops[op].weights }

// Tensor returns the reference values of a tensor of an op.
func (m *Dense) Tensor(op, tensor int) []float32 { return m.ops[op].values(tensor) }

// Free releases the slabs.
func (m *Dense) Free() {
	for i, d := range m.ops {
		if d != nil && owner(m.p, i) == i {
			d.slab.Free()
		}
	}
}

// owner is the index of the op whose record op i uses: its own, or for a tied
// lm_head the embedding's.
func owner(p *doc.Profile, i int) int {
	shares := p.Ops[i].Shares
	if shares == "" {
		return i
	}
	for j := range p.Ops {
		if p.Ops[j].ID == shares {
			return j
		}
	}
	return i
}
