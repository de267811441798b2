package arch

import (
	"cmp"
	"fmt"
	"math"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// Options size a graph.
type Options struct {
	Context int    // positions that the KV cache holds
	KVType  string // "f32", "f16"
	Chunk   int    // rows of the largest step, >= 1
	// LogitRows is how many rows of one step may go through the head: 1 for
	// generation, Chunk for teacher-forced scoring.
	LogitRows int
}

// Graph is one sequence's state: registers, KV cache, the routes of the
// layer at hand. A step is Begin, then the ops in topological order.
type Graph struct {
	// Observe, if set, is shown the input of every matrix product, under the
	// role of the first matrix that reads it: "q" (also k, v), "o", "gate"
	// (also up), "down", "weight" (router, lm_head); in latent attention
	// "latent" (also k_rope and q_a), "q_nope" (also q_rope), "k_up" and "v_up",
	// whose rows hold an input of every head. Experts are not shown, shared
	// ones are.
	Observe func(role string, x backend.Tensor)

	b    backend.Backend
	a    *doc.Architecture
	opt  Options
	freq []float32
	spec backend.AttentionSpec

	hidden, norm  backend.Tensor // [Chunk, hidden]
	q, k, v, attn backend.Tensor // [Chunk, heads*headDim]
	gate, up      backend.Tensor // [Chunk, intermediate]
	expertOut     backend.Tensor // [Chunk*topK, hidden]
	sharedGate    backend.Tensor // [Chunk, shared]
	sharedUp      backend.Tensor
	latent        latent
	logits        backend.Tensor // [LogitRows, vocab]
	kv            []backend.KV
	dsts          [4]backend.Tensor
	weights       [4]*backend.Linear
	routes        Routes
	ids           []int32
	rows, pos     int
}

// register lists every register of a graph, so that New and ScratchBytes
// agree.
type register struct {
	field      func(*Graph) *backend.Tensor
	rows, cols int
}

func registers(a *doc.Architecture, o Options) []register {
	regs := []register{
		{func(g *Graph) *backend.Tensor { return &g.hidden }, o.Chunk, a.HiddenSize},
		{func(g *Graph) *backend.Tensor { return &g.norm }, o.Chunk, a.HiddenSize},
		{func(g *Graph) *backend.Tensor { return &g.logits }, o.LogitRows, a.VocabSize},
	}
	if a.Latent != nil {
		regs = append(regs, latentRegisters(a, o)...)
	} else {
		qCols, kvCols := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
		regs = append(regs,
			register{func(g *Graph) *backend.Tensor { return &g.q }, o.Chunk, qCols},
			register{func(g *Graph) *backend.Tensor { return &g.k }, o.Chunk, kvCols},
			register{func(g *Graph) *backend.Tensor { return &g.v }, o.Chunk, kvCols},
			register{func(g *Graph) *backend.Tensor { return &g.attn }, o.Chunk, qCols})
	}
	if len(a.MoELayers) < a.Layers {
		regs = append(regs,
			register{func(g *Graph) *backend.Tensor { return &g.gate }, o.Chunk, a.IntermediateSize},
			register{func(g *Graph) *backend.Tensor { return &g.up }, o.Chunk, a.IntermediateSize})
	}
	if len(a.MoELayers) > 0 {
		regs = append(regs,
			register{func(g *Graph) *backend.Tensor { return &g.expertOut }, o.Chunk * a.ExpertsPerToken, a.HiddenSize})
		if a.SharedSize > 0 {
			regs = append(regs,
				register{func(g *Graph) *backend.Tensor { return &g.sharedGate }, o.Chunk, a.SharedSize},
				register{func(g *Graph) *backend.Tensor { return &g.sharedUp }, o.Chunk, a.SharedSize})
		}
	}
	return regs
}

// RegisterBytes is the memory of a graph's registers. What a backend holds
// beside them (quantised activations, expert intermediates) is
// backend.ScratchBytes.
func RegisterBytes(a *doc.Architecture, o Options) int64 {
	var sum int64
	for _, r := range registers(a, o) {
		sum += 4 * int64(r.rows) * int64(r.cols)
	}
	return sum
}

// New makes the registers and caches of one sequence.
func New(b backend.Backend, a *doc.Architecture, o Options) (*Graph, error) {
	if o.Context < 1 || o.Chunk < 1 || o.LogitRows < 1 || o.LogitRows > o.Chunk {
		return nil, fmt.Errorf("graph of context %d, chunk %d, logit rows %d: want context, chunk >= 1 and 1 <= logit rows <= chunk", o.Context, o.Chunk, o.LogitRows)
	}
	if err := supported(b, a); err != nil {
		return nil, err
	}
	freq, err := ropeFrequencies(a)
	if err != nil {
		return nil, err
	}
	key, value := a.CacheDim()
	g := &Graph{b: b, a: a, opt: o, freq: freq, kv: make([]backend.KV, a.Layers), spec: backend.AttentionSpec{
		Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: key,
		Scale: float32(cmp.Or(a.AttentionScale, 1) / math.Sqrt(float64(a.HeadDim))),
	}}
	for _, r := range registers(a, o) {
		if *r.field(g), err = b.Tensor(r.rows, r.cols); err != nil {
			return nil, err
		}
	}
	cache := backend.KVSpec{Heads: a.KVHeads, HeadDim: key, Context: o.Context, Type: o.KVType}
	if a.Latent != nil {
		cache.Latent = value
	}
	for l := range g.kv {
		if g.kv[l], err = b.KV(cache); err != nil {
			return nil, fmt.Errorf("KV cache of layer %d: %w", l, err)
		}
	}
	if len(a.MoELayers) > 0 {
		g.routes.init(a.Experts, a.ExpertsPerToken, o.Chunk)
	}
	return g, nil
}

// Begin starts a step over ids at positions pos, pos+1, ... The first
// position of a new sequence is 0; lower positions stay as they are in the KV
// cache.
func (g *Graph) Begin(ids []int32, pos int) error {
	if len(ids) < 1 || len(ids) > g.opt.Chunk {
		return fmt.Errorf("step of %d tokens: want 1 to %d", len(ids), g.opt.Chunk)
	}
	if pos < 0 || pos+len(ids) > g.opt.Context {
		return fmt.Errorf("positions %d to %d do not fit a context of %d tokens", pos, pos+len(ids), g.opt.Context)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= g.a.VocabSize {
			return fmt.Errorf("token id %d is outside the vocabulary of %d", id, g.a.VocabSize)
		}
	}
	g.ids, g.rows, g.pos = ids, len(ids), pos
	return nil
}

func (g *Graph) observe(role string, x backend.Tensor) {
	if g.Observe != nil {
		g.Observe(role, x)
	}
}

// Rows is the number of tokens of the step.
func (g *Graph) Rows() int { return g.rows }

// Hidden is the residual stream of the step, [rows, hidden].
func (g *Graph) Hidden() backend.Tensor { return g.hidden.Head(g.rows) }

// LastHidden copies the last row of the residual stream to dst [hidden]. It
// waits for the device.
func (g *Graph) LastHidden(dst []float32) error {
	return g.b.Logits(dst, g.Hidden(), g.rows-1)
}

// Embed sets the residual stream to the tokens' embeddings.
func (g *Graph) Embed(w *Weights) { g.b.Embed(g.Hidden(), g.ids, &w.Weight) }

// attentionSpec is the shape of a layer's attention.
func (g *Graph) attentionSpec(layer int, w *Weights) backend.AttentionSpec {
	spec := g.spec
	spec.Window, spec.Sinks = g.a.Window(layer), w.Sinks
	return spec
}

// Attention adds a layer's attention to the residual stream.
func (g *Graph) Attention(layer int, w *Weights) {
	if g.a.Latent != nil {
		g.latentAttention(layer, w)
		return
	}
	b, n := g.b, g.rows
	h, x, q, k, v, y := g.hidden.Head(n), g.norm.Head(n), g.q.Head(n), g.k.Head(n), g.v.Head(n), g.attn.Head(n)
	b.RMSNorm(x, h, w.Norm, float32(g.a.NormEps))
	g.observe(doc.RoleQ, x)
	g.dsts[0], g.dsts[1], g.dsts[2] = q, k, v
	g.weights[0], g.weights[1], g.weights[2] = &w.Q, &w.K, &w.V
	b.Linears(g.dsts[:3], x, g.weights[:3])
	if g.a.QKNorm {
		b.RMSNorm(q, q, w.QNorm, float32(g.a.NormEps))
		b.RMSNorm(k, k, w.KNorm, float32(g.a.NormEps))
	}
	b.RoPE(q, g.a.HeadDim, g.pos, g.freq)
	b.RoPE(k, g.a.HeadDim, g.pos, g.freq)
	b.Attention(y, q, k, v, g.kv[layer], g.pos, g.attentionSpec(layer, w))
	g.observe(doc.RoleO, y)
	b.Linear(x, y, &w.O)
	b.Add(h, x)
}

// MLP adds a dense layer's SwiGLU to the residual stream.
func (g *Graph) MLP(w *Weights) {
	n := g.rows
	g.b.RMSNorm(g.norm.Head(n), g.hidden.Head(n), w.Norm, float32(g.a.NormEps))
	g.swiglu(w, g.gate.Head(n), g.up.Head(n))
}

// swiglu adds down(silu(gate(x)) * up(x)) of the normalised rows, which it
// overwrites, to the residual stream.
func (g *Graph) swiglu(w *Weights, gate, up backend.Tensor) {
	b, h, x := g.b, g.hidden.Head(g.rows), g.norm.Head(g.rows)
	g.observe(doc.RoleGate, x)
	g.dsts[0], g.dsts[1] = gate, up
	g.weights[0], g.weights[1] = &w.Gate, &w.Up
	b.Linears(g.dsts[:2], x, g.weights[:2])
	b.SwiGLU(gate, gate, up)
	g.observe(doc.RoleDown, gate)
	b.Linear(x, gate, &w.Down)
	b.Add(h, x)
}

// FinalNorm normalises the last rows of the step, those that get logits.
func (g *Graph) FinalNorm(w *Weights) {
	n := g.LogitRows()
	x := g.norm.Head(n)
	g.b.Take(x, g.Hidden(), g.rows-n)
	g.b.RMSNorm(x, x, w.Norm, float32(g.a.NormEps))
}

// LogitRows is how many rows of the step get logits: its last ones.
func (g *Graph) LogitRows() int { return min(g.rows, g.opt.LogitRows) }

// Head computes logits from the normalised rows.
func (g *Graph) Head(w *Weights) {
	n := g.LogitRows()
	g.observe(doc.RoleWeight, g.norm.Head(n))
	g.b.Linear(g.logits.Head(n), g.norm.Head(n), &w.Weight)
}

// Logits copies the logits of row, counted from the first row that has
// logits, to dst [vocab]. It waits for the device.
func (g *Graph) Logits(dst []float32, row int) error {
	return g.b.Logits(dst, g.logits.Head(g.LogitRows()), row)
}
