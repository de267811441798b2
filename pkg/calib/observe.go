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

// routing is what the reference run saw of one MoE layer.
type routing struct {
	ids    []int32   // [tokens*topK], in order
	mass   []float64 // by expert: sum of normalised router weights
	hits   []int64   // by expert: tokens that routed there
	tokens int64
}

func (r *routing) add(routes *arch.Routes, rows int) {
	k := routes.TopK
	r.ids = append(r.ids, routes.IDs[:rows*k]...)
	for t := range rows {
		var sum float64
		for j := range k {
			sum += float64(routes.Weights[t*k+j])
		}
		for j := range k {
			e := routes.IDs[t*k+j]
			r.mass[e] += float64(routes.Weights[t*k+j]) / sum
			r.hits[e]++
		}
	}
	r.tokens += int64(rows)
}

// reuse returns the hit rate of an LRU cache for every number of slots from 0
// to experts, in decode order. A cache holds the s most recently used experts
// exactly when each expert's stack distance is below s (Mattson 1970), so one
// pass serves all sizes. The experts of one token are touched in ascending
// order after all were looked up, as the run does.
func (r *routing) reuse(topK int) []float64 {
	experts := len(r.mass)
	stack := make([]int32, 0, experts) // most recent first
	hitsAt := make([]int64, experts+1) // by distance
	var total int64
	for t := 0; t+topK <= len(r.ids); t += topK {
		token := r.ids[t : t+topK]
		for _, e := range token {
			total++
			for d, s := range stack {
				if s == e {
					hitsAt[d+1]++
					break
				}
			}
		}
		for e := range int32(experts) {
			if contains(token, e) {
				stack = touch(stack, e)
			}
		}
	}
	rate := make([]float64, experts+1)
	var hits int64
	for s := range rate {
		hits += hitsAt[s]
		if total > 0 {
			rate[s] = float64(hits) / float64(total)
		}
	}
	return rate
}

func contains(v []int32, x int32) bool {
	for _, y := range v {
		if y == x {
			return true
		}
	}
	return false
}

// touch moves e to the front.
func touch(stack []int32, e int32) []int32 {
	at := len(stack)
	for i, s := range stack {
		if s == e {
			at = i
			break
		}
	}
	if at == len(stack) {
		stack = append(stack, e)
	}
	copy(stack[1:at+1], stack[:at])
	stack[0] = e
	return stack
}

// observer collects moments and routing while the reference runs.
type observer struct {
	f       *Forward
	p       *doc.Profile
	m       []moments // by op
	routing []routing // by layer
	at      int       // stage that runs
	host    []float32

	// Registers to run one expert's products apart, whose inner input the
	// backend does not show otherwise.
	x, gate, up backend.Tensor
	dsts        [2]backend.Tensor
	ws          [2]*backend.Linear
	err         error
}

func newObserver(f *Forward, p *doc.Profile, tokens int) (*observer, error) {
	a := &p.Architecture
	o := &observer{f: f, p: p, m: make([]moments, len(p.Ops)), routing: make([]routing, a.Layers)}
	for _, l := range a.MoELayers {
		o.routing[l].mass, o.routing[l].hits = make([]float64, a.Experts), make([]int64, a.Experts)
	}
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
	if s.kind == doc.KindLMHead {
		op = owner(o.p, s.head)
	}
	if o.err == nil {
		o.err = o.read(x)
	}
	if o.err == nil {
		o.m[op].add(role, o.host, x.Cols)
	}
}

// read copies x to o.host.
func (o *observer) read(x backend.Tensor) error {
	if n := x.Rows * x.Cols; cap(o.host) < n {
		o.host = make([]float32, n)
	}
	o.host = o.host[:x.Rows*x.Cols]
	return readRows(o.host, o.f.B, x)
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
		b.SwiGLU(gate, gate, up)
		if err := o.read(gate); err != nil {
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
