package arch

import (
	"slices"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// Routes holds what the router of one layer chose for a step, grouped by
// expert. Its slices live as long as the graph.
type Routes struct {
	TopK    int
	IDs     []int32   // [rows*TopK], descending weight within a row
	Weights []float32 // [rows*TopK]
	// Experts lists the distinct chosen experts, ascending.
	Experts []int32

	start   []int32 // [experts+1]: where an expert's rows begin in in and out
	in, out []int32 // [rows*TopK]: rows of x, and rows of the experts' output
	calls   []backend.ExpertCall
}

func (r *Routes) init(experts, topK, chunk int) {
	n := chunk * topK
	r.TopK = topK
	r.IDs, r.Weights = make([]int32, n), make([]float32, n)
	r.in, r.out = make([]int32, n), make([]int32, n)
	r.start = make([]int32, experts+1)
	r.Experts = make([]int32, 0, experts)
	r.calls = make([]backend.ExpertCall, 0, experts)
}

// Rows returns, for an expert, the rows of the step it serves.
func (r *Routes) Rows(expert int32) []int32 {
	return r.in[r.start[expert]:r.start[expert+1]]
}

// RowWeights appends the weights of an expert in this step to dst, in the order
// of Rows.
func (r *Routes) RowWeights(dst []float32, expert int32) []float32 {
	for _, o := range r.out[r.start[expert]:r.start[expert+1]] {
		dst = append(dst, r.Weights[o])
	}
	return dst
}

// Mass returns the sum of an expert's weights in this step.
func (r *Routes) Mass(expert int32) float64 {
	var sum float64
	for _, o := range r.out[r.start[expert]:r.start[expert+1]] {
		sum += float64(r.Weights[o])
	}
	return sum
}

// group sorts the choices of rows by expert, stably (counting sort).
func (r *Routes) group(rows int) {
	ids := r.IDs[:rows*r.TopK]
	clear(r.start)
	for _, id := range ids {
		r.start[id+1]++
	}
	r.Experts = r.Experts[:0]
	for e := range len(r.start) - 1 {
		if r.start[e+1] > 0 {
			r.Experts = append(r.Experts, int32(e))
		}
		r.start[e+1] += r.start[e]
	}
	// Fill moves every start to its expert's end; shifting by one expert
	// restores them.
	for i, id := range ids {
		at := r.start[id]
		r.in[at], r.out[at] = int32(i/r.TopK), int32(i)
		r.start[id]++
	}
	copy(r.start[1:], r.start[:len(r.start)-1])
	r.start[0] = 0
}

// Route normalises the residual stream, runs a layer's router on it and
// groups the choices. Experts then see the same normalised rows. It waits for
// the device.
func (g *Graph) Route(w *Weights) (*Routes, error) {
	n, r := g.rows, &g.routes
	x := g.norm.Head(n)
	g.b.RMSNorm(x, g.Hidden(), w.Norm, float32(g.a.NormEps))
	g.observe(doc.RoleWeight, x)
	spec := backend.RouteSpec{
		TopK: r.TopK, Norm: g.a.NormTopK, Scale: float32(g.a.RouteScale), Groups: g.a.RouteGroups, TopGroups: g.a.RouteTopGroups,
	}
	if err := g.b.Route(r.IDs[:n*r.TopK], r.Weights[:n*r.TopK], x, &w.Weight, spec); err != nil {
		return nil, err
	}
	r.group(n)
	r.calls = r.calls[:0]
	return r, nil
}

// Expert queues one routed expert; RunExperts runs the queue. Queueing all
// that are ready lets a backend fill its threads, running them in portions
// lets a run compute some while others are read: the result is the same.
func (g *Graph) Expert(expert int32, w *Weights) {
	r := &g.routes
	lo, hi := r.start[expert], r.start[expert+1]
	r.calls = append(r.calls, backend.ExpertCall{
		Gate: &w.Gate, Up: &w.Up, Down: &w.Down, InRows: r.in[lo:hi], OutRows: r.out[lo:hi], Act: g.Act(),
	})
}

// Act is how experts join gate and up.
func (g *Graph) Act() backend.Activation {
	return backend.Activation{Alpha: float32(g.a.SwiGLUAlpha), Limit: float32(g.a.SwiGLULimit)}
}

// Shared adds the layer's shared experts to the residual stream. It comes
// behind Combine and overwrites what the experts saw.
func (g *Graph) Shared(w *Weights) {
	g.swiglu(w, g.sharedGate.Head(g.rows), g.sharedUp.Head(g.rows))
}

// Drop leaves a routed expert out: what the layer's shared expert adds to its
// tokens stands for it. Its weight goes to nobody.
func (g *Graph) Drop(expert int32) {
	r := &g.routes
	for _, o := range r.out[r.start[expert]:r.start[expert+1]] {
		r.Weights[o] = 0
	}
}

// Normalised is what the router and the experts of the layer see.
func (g *Graph) Normalised() backend.Tensor { return g.norm.Head(g.rows) }

// RunExperts runs the queued experts.
func (g *Graph) RunExperts() {
	r := &g.routes
	if len(r.calls) > 0 {
		g.b.Experts(g.expertOut.Head(g.rows*r.TopK), g.norm.Head(g.rows), r.calls)
		r.calls = r.calls[:0]
	}
}

// ExpertOutputs is what the experts that ran left, [rows*TopK, hidden]: row
// t*TopK+j belongs to choice j of token t.
func (g *Graph) ExpertOutputs() backend.Tensor { return g.expertOut.Head(g.rows * g.routes.TopK) }

// Combine adds the experts' weighted outputs to the residual stream, in the
// router's order.
func (g *Graph) Combine() {
	r, n := &g.routes, g.rows
	g.b.Combine(g.Hidden(), g.expertOut.Head(n*r.TopK), r.Weights[:n*r.TopK], r.TopK)
}

// Clone copies routes for a caller that keeps them beyond the step.
func (r *Routes) Clone(rows int) (ids []int32, weights []float32) {
	return slices.Clone(r.IDs[:rows*r.TopK]), slices.Clone(r.Weights[:rows*r.TopK])
}
