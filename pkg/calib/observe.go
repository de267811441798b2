package calib

import (
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// moments sum x^2 over the inputs of an op's matrices, under the role of the
// first matrix that reads an input.
type moments struct {
	sum  map[string][]float64
	rows map[string]int64
}

func (m *moments) add(role string, x []float32, cols int) {
	if m.sum == nil {
		m.sum, m.rows = map[string][]float64{}, map[string]int64{}
	}
	sum := m.sum[role]
	if sum == nil {
		sum = make([]float64, cols)
		m.sum[role] = sum
	}
	for i, v := range x {
		sum[i%cols] += float64(v) * float64(v)
	}
	m.rows[role] += int64(len(x) / cols)
}

// observer collects moments and routing while the reference runs.
type observer struct {
	f       *Forward
	p       *doc.Profile
	m       []moments // by op
	routing []routing // by layer
	at      int       // stage that runs
	host    []float32
	inner   []float32

	// Registers to run one expert's products apart, whose inner input the
	// backend does not show otherwise.
	x, gate, up backend.Tensor
	dsts        [2]backend.Tensor
	ws          [2]*backend.Linear
	err         error
}

func newObserver(f *Forward, p *doc.Profile, tokens int) (*observer, error) {
	a := &p.Architecture
	o := &observer{f: f, p: p, m: make([]moments, len(p.Ops)), routing: newRouting(a)}
	if len(a.MoELayers) == 0 {
		return o, nil
	}
	var err error
	for _, r := range []struct {
		t    *backend.Tensor
		cols int
	}{{&o.x, a.HiddenSize}, {&o.gate, a.ExpertSize}, {&o.up, a.ExpertSize}} {
		if *r.t, err = f.B.Tensor(tokens, r.cols); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// run makes one reference step with everything observed.
func (o *observer) run(ids []int32, w Lookup, before func(stage int)) error {
	o.f.G.Observe = o.observe
	o.f.Routed = func(layer int, r *arch.Routes) error { return o.routed(layer, r, w) }
	defer func() { o.f.G.Observe, o.f.Routed = nil, nil }()
	err := o.f.Run(ids, 0, w, func(stage int) {
		o.at = stage
		if before != nil {
			before(stage)
		}
	})
	if err == nil {
		err = o.err
	}
	return err
}

func (o *observer) observe(role string, x backend.Tensor) {
	s := &o.f.stages[o.at]
	op := s.op
	switch {
	case s.kind == doc.KindLMHead:
		op = owner(o.p, s.head)
	case s.kind == doc.KindMoERouter && role != doc.RoleWeight:
		op = s.shared
	}
	if o.err == nil {
		o.err = o.read(x)
	}
	if o.err == nil {
		o.m[op].add(role, o.host, inputs(&o.p.Ops[op], role, x.Cols))
	}
}

// inputs is how many inputs a matrix has, of a register with so many columns:
// all of them, or those of one head.
func inputs(op *doc.Op, role string, cols int) int {
	for i := range op.Tensors {
		if t := &op.Tensors[i]; t.Role == role && t.Rows > 1 {
			return t.Cols
		}
	}
	return cols
}

// read copies x to o.host.
func (o *observer) read(x backend.Tensor) error {
	if n := x.Rows * x.Cols; cap(o.host) < n {
		o.host = make([]float32, n)
	}
	o.host = o.host[:x.Rows*x.Cols]
	return readRows(o.host, o.f.B, x)
}

// readInner sets o.host to what an expert's down product sees.
func (o *observer) readInner(gate, up backend.Tensor) error {
	if err := o.read(up); err != nil {
		return err
	}
	ups := append(o.inner[:0], o.host...)
	if err := o.read(gate); err != nil {
		return err
	}
	act := o.f.G.Act()
	for i, u := range ups {
		o.host[i] = act.Apply(o.host[i], u)
	}
	o.inner = ups
	return nil
}

// routed records a layer's routes and runs every expert once more on its own
// rows, to see the input of its down product.
func (o *observer) routed(layer int, r *arch.Routes, w Lookup) error {
	b, rows := o.f.B, o.f.G.Rows()
	o.routing[layer].add(r, rows)
	x := o.f.G.Normalised()
	if err := o.read(x); err != nil {
		return err
	}
	all := append([]float32(nil), o.host...)
	s := &o.f.stages[o.at]
	for _, e := range r.Experts {
		in := r.Rows(e)
		op := s.experts + int(e)
		gathered := o.host[:0]
		for _, row := range in {
			gathered = append(gathered, all[int(row)*x.Cols:(int(row)+1)*x.Cols]...)
		}
		o.m[op].add(doc.RoleGate, gathered, x.Cols)
		ew := w(op)
		ex, gate, up := o.x.Head(len(in)), o.gate.Head(len(in)), o.up.Head(len(in))
		b.Load(ex, gathered)
		o.dsts, o.ws = [2]backend.Tensor{gate, up}, [2]*backend.Linear{&ew.Gate, &ew.Up}
		b.Linears(o.dsts[:], ex, o.ws[:])
		if err := o.readInner(gate, up); err != nil {
			return fmt.Errorf("layer %d, expert %d: %w", layer, e, err)
		}
		o.m[op].add(doc.RoleDown, o.host, gate.Cols)
	}
	return nil
}

// stats gives the moments the form that sb-pack reads.
func (o *observer) stats() (*quant.Stats, error) {
	stats := quant.NewStats()
	for i := range o.p.Ops {
		for role, sum := range o.m[i].sum {
			mean := make([]float32, len(sum))
			for j, v := range sum {
				mean[j] = float32(v / float64(o.m[i].rows[role]))
			}
			if err := stats.Set(o.p.Ops[i].ID, role, o.m[i].rows[role], mean); err != nil {
				return nil, err
			}
		}
	}
	return stats, nil
}
