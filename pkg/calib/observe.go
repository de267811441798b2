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
	gram map[string]*gramSum
}

// add takes rows of an input. limit is how many rows of it may be kept for its
// Gram matrix, to which they are added times weights, nil for 1: an expert's
// error counts as much as its output does. x is spoilt.
func (m *moments) add(role string, x, weights []float32, cols, limit int, gemm backend.GEMM) {
	if m.sum == nil {
		m.sum, m.rows, m.gram = map[string][]float64{}, map[string]int64{}, map[string]*gramSum{}
	}
	sum := m.sum[role]
	if sum == nil {
		sum = make([]float64, cols)
		m.sum[role] = sum
		m.gram[role] = &gramSum{cols: cols, limit: limit, stride: 1}
	}
	for i, v := range x {
		sum[i%cols] += float64(v) * float64(v)
	}
	m.rows[role] += int64(len(x) / cols)
	for i, w := range weights {
		for j := range cols {
			x[i*cols+j] *= w
		}
	}
	m.gram[role].add(gemm, x)
}

// observer collects moments and routing while the reference runs.
type observer struct {
	f       *Forward
	p       *doc.Profile
	m       []moments // by op
	routing []routing // by layer
	at      int       // stage that runs
	stats   *quant.Stats
	limit   int // rows of an input that may be kept for its Gram matrix
	gemm    backend.GEMM
	// routesOnly: inputs of matrices are not watched.
	routesOnly bool
	host       []float32
	inner      []float32

	// Registers to run one expert's products apart, whose inner input the
	// backend does not show otherwise.
	x, gate, up backend.Tensor
	dsts        [2]backend.Tensor
	ws          [2]*backend.Linear
	err         error
}

func newObserver(f *Forward, p *doc.Profile, tokens int) (*observer, error) {
	a := &p.Architecture
	o := &observer{f: f, p: p, m: make([]moments, len(p.Ops)), routing: newRouting(a), stats: quant.NewStats()}
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

func (o *observer) observe(role string, x backend.Tensor) {
	if o.routesOnly {
		return
	}
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
		o.add(op, role, o.host, nil, inputs(&o.p.Ops[op], role, x.Cols))
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
	if o.routesOnly {
		return nil
	}
	x := o.f.G.Normalised()
	if err := o.read(x); err != nil {
		return err
	}
	all := append([]float32(nil), o.host...)
	s := &o.f.stages[o.at]
	var weights []float32
	for _, e := range r.Experts {
		in := r.Rows(e)
		op := s.experts + int(e)
		gathered := o.host[:0]
		for _, row := range in {
			gathered = append(gathered, all[int(row)*x.Cols:(int(row)+1)*x.Cols]...)
		}
		ew := w(op)
		ex, gate, up := o.x.Head(len(in)), o.gate.Head(len(in)), o.up.Head(len(in))
		b.Load(ex, gathered)
		weights = r.RowWeights(weights[:0], e)
		o.add(op, doc.RoleGate, gathered, weights, x.Cols)
		o.dsts, o.ws = [2]backend.Tensor{gate, up}, [2]*backend.Linear{&ew.Gate, &ew.Up}
		b.Linears(o.dsts[:], ex, o.ws[:])
		if err := o.readInner(gate, up); err != nil {
			return fmt.Errorf("layer %d, expert %d: %w", layer, e, err)
		}
		o.add(op, doc.RoleDown, o.host, weights, gate.Cols)
	}
	return nil
}

// collectGrams makes the observer keep what gptq needs, in no more than bytes.
func (o *observer) collectGrams(bytes int64, tokens int, gemm backend.GEMM) {
	if gemm == nil {
		gemm = backend.PlainGEMM
	}
	o.limit, o.gemm, o.stats.GEMM = quant.GramLimit(gramInputs(o.p, tokens), bytes), gemm, gemm
}

func (o *observer) add(op int, role string, x, weights []float32, cols int) {
	o.m[op].add(role, x, weights, cols, o.limit, o.gemm)
}

// flush hands what a finished stage saw to the statistics.
func (o *observer) flush() error {
	for i := range o.m {
		id := o.p.Ops[i].ID
		for role, sum := range o.m[i].sum {
			n := o.m[i].rows[role]
			mean := make([]float32, len(sum))
			for j, v := range sum {
				mean[j] = float32(v / float64(n))
			}
			if err := o.stats.Set(id, role, n, mean); err != nil {
				return err
			}
			if err := o.m[i].gram[role].set(o.gemm, o.stats, id, role); err != nil {
				return err
			}
		}
		o.m[i] = moments{}
	}
	return nil
}
