package calib

import (
	"context"
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// loaded is the reference of one stage in memory, in the source's own
// precision where that is 16 bits.
type loaded struct {
	ops map[int]*codedOp // by index of the owner
	p   *doc.Profile
}

// codedOp is an op's records in slabs.
type codedOp struct {
	op      *doc.Op
	records []quant.Record
	slabs   []backend.Slab
	weights *arch.Weights
}

func (c *codedOp) free() {
	for _, s := range c.slabs {
		s.Free()
	}
}

// bindRecords takes records into slabs of b.
func bindRecords(b backend.Backend, op *doc.Op, records []quant.Record) (c *codedOp, err error) {
	c = &codedOp{op: op}
	var parts []arch.Part
	for _, r := range records {
		slab, err := b.Alloc(int64(len(r.Bytes)))
		if err != nil {
			return c, fmt.Errorf("op %s: %w", op.ID, err)
		}
		copy(slab.Bytes(), r.Bytes)
		layout := *r.Layout
		c.slabs = append(c.slabs, slab)
		c.records = append(c.records, quant.Record{Layout: &layout, Bytes: slab.Bytes()[:len(r.Bytes)]})
		parts = append(parts, arch.Part{Slab: slab, Layout: &layout})
	}
	if c.weights, err = arch.Bind(b, op.Kind, parts...); err != nil {
		err = fmt.Errorf("op %s: %w", op.ID, err)
	}
	return c, err
}

// weights is the Lookup of the stage.
func (l *loaded) weights(op int) *arch.Weights { return l.ops[owner(l.p, op)].weights }

func (l *loaded) free() {
	if l != nil {
		for _, c := range l.ops {
			c.free()
		}
	}
}

// ReadRows reads rows of the reference in memory, to fit codes to.
func (l *loaded) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	for _, c := range l.ops {
		for i := range c.op.Tensors {
			if &c.op.Tensors[i] != t {
				continue
			}
			m, ok, err := c.records[0].Matrix(t.Role)
			if err != nil || !ok {
				return fmt.Errorf("tensor %q is not in its record: %w", t.Source.Name, err)
			}
			for r := range rows {
				m.Row(dst[r*t.Cols:(r+1)*t.Cols], row+r)
			}
			return nil
		}
	}
	return fmt.Errorf("tensor %q is not of the stage in memory", t.Source.Name)
}

// ops lists the ops of a stage with the weights that it reads.
func (s *stage) ops(experts int) []int {
	switch s.kind {
	case doc.KindMoERouter:
		ops := []int{s.op}
		for e := range experts {
			ops = append(ops, s.experts+e)
		}
		if s.shared >= 0 {
			ops = append(ops, s.shared)
		}
		return ops
	case doc.KindLMHead:
		return []int{s.op, s.head}
	}
	return []int{s.op}
}

// exactEncoding holds an op's values as the checkpoint does.
func exactEncoding(op *doc.Op) doc.Encoding {
	dtype := ""
	for i := range op.Tensors {
		if d := op.Tensors[i].DType; dtype == "" || d == dtype {
			dtype = d
		} else {
			dtype = "f32"
		}
	}
	if dtype != "bf16" && dtype != "f16" {
		return denseEncoding
	}
	return doc.Encoding{ID: dtype, Bits: 16, Scale: dtype, Fit: "none"}
}

// loadStage reads the reference's weights of a stage.
func (m *measurement) loadStage(ctx context.Context, i int) (*loaded, error) {
	l := &loaded{ops: map[int]*codedOp{}, p: m.p}
	enc := quant.Encoder{Source: m.rows, Threads: m.opt.Threads}
	for _, n := range m.f.stages[i].ops(m.p.Architecture.Experts) {
		n = owner(m.p, n)
		if err := ctx.Err(); err != nil {
			return l, err
		}
		op := &m.p.Ops[n]
		e := exactEncoding(op)
		layout, err := footprint.Layout(op, &e)
		if err != nil {
			return l, err
		}
		c := &codedOp{op: op}
		l.ops[n] = c
		slab, err := m.b.Alloc(layout.Bytes)
		if err != nil {
			return l, fmt.Errorf("op %s: %w", op.ID, err)
		}
		c.slabs = append(c.slabs, slab)
		c.records = []quant.Record{{Layout: &layout, Bytes: slab.Bytes()[:layout.Bytes]}}
		if err := enc.Encode(ctx, c.records[0].Bytes, op, &e, &layout); err != nil {
			return l, err
		}
		if c.weights, err = arch.Bind(m.b, op.Kind, arch.Part{Slab: slab, Layout: &layout}); err != nil {
			return l, fmt.Errorf("op %s: %w", op.ID, err)
		}
	}
	return l, nil
}

// codedStage is a variant's weights of one stage.
type codedStage struct {
	ref     *loaded
	ops     map[int]*codedOp
	kept    map[int]bool // not this stage's to free
	weights Lookup
}

func (c *codedStage) free() {
	if c == nil {
		return
	}
	for n, op := range c.ops {
		if !c.kept[n] {
			op.free()
		}
	}
}

// codeStage puts the ops of a stage that a variant has in codes into them.
func (m *measurement) codeStage(ctx context.Context, i int, ref *loaded, v *variant) (*codedStage, error) {
	c := &codedStage{ref: ref, ops: map[int]*codedOp{}, kept: map[int]bool{}}
	c.weights = func(op int) *arch.Weights {
		op = owner(m.p, op)
		if own := c.ops[op]; own != nil {
			return own.weights
		}
		return ref.ops[op].weights
	}
	coder := *m.coder
	coder.enc.Source = ref
	if v.source != nil {
		coder.enc.Source = v.source
	}
	for _, n := range m.f.stages[i].ops(m.p.Architecture.Experts) {
		n = owner(m.p, n)
		op := &m.p.Ops[n]
		level := v.level(op)
		if level == nil {
			continue
		}
		if kept := v.kept[n]; kept != nil {
			c.ops[n], c.kept[n] = kept, true
			continue
		}
		records, err := coder.records(ctx, op, level)
		if err != nil {
			return c, err
		}
		own, err := bindRecords(v.f.B, op, records)
		c.ops[n] = own
		if err != nil {
			return c, err
		}
		if m.sharedOps[n] {
			if v.kept == nil {
				v.kept = map[int]*codedOp{}
			}
			v.kept[n], c.kept[n] = own, true
		}
	}
	m.coder.bytes = coder.bytes
	return c, nil
}
