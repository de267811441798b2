package arch

import (
	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// latent holds the registers of multi-head latent attention (DeepSeek-V2,
// arXiv:2405.04434).
//
// The key of a head is k_up^T c followed by the rotated k_rope, where c is the
// token's latent; its value is v_up c. Only c and k_rope are cached. As
// q . (k_up^T c) = (k_up q) . c, queries are taken to the latents' space: then
// all heads share one key, whose first part is also the one value, and v_up
// comes behind the attention.
type latent struct {
	qa           backend.Tensor // [Chunk, qRank]
	qNope, qRoPE backend.Tensor // [Chunk, heads*nope], [Chunk, heads*rope]
	qUp, query   backend.Tensor // [Chunk, heads*kvRank], [Chunk, heads*(kvRank+rope)]
	c, kRoPE     backend.Tensor // [Chunk, kvRank], [Chunk, rope]
	key          backend.Tensor // [Chunk, kvRank+rope]
	out, values  backend.Tensor // [Chunk, heads*kvRank], [Chunk, heads*value]
}

func latentRegisters(a *doc.Architecture, o Options) []register {
	l, heads := a.Latent, a.Heads
	regs := []register{
		{func(g *Graph) *backend.Tensor { return &g.latent.qNope }, o.Chunk, heads * l.NoPEDim},
		{func(g *Graph) *backend.Tensor { return &g.latent.qRoPE }, o.Chunk, heads * l.RoPEDim},
		{func(g *Graph) *backend.Tensor { return &g.latent.qUp }, o.Chunk, heads * l.KVRank},
		{func(g *Graph) *backend.Tensor { return &g.latent.query }, o.Chunk, heads * (l.KVRank + l.RoPEDim)},
		{func(g *Graph) *backend.Tensor { return &g.latent.c }, o.Chunk, l.KVRank},
		{func(g *Graph) *backend.Tensor { return &g.latent.kRoPE }, o.Chunk, l.RoPEDim},
		{func(g *Graph) *backend.Tensor { return &g.latent.key }, o.Chunk, l.KVRank + l.RoPEDim},
		{func(g *Graph) *backend.Tensor { return &g.latent.out }, o.Chunk, heads * l.KVRank},
		{func(g *Graph) *backend.Tensor { return &g.latent.values }, o.Chunk, heads * l.ValueDim},
	}
	if l.QRank > 0 {
		regs = append(regs, register{func(g *Graph) *backend.Tensor { return &g.latent.qa }, o.Chunk, l.QRank})
	}
	return regs
}

// latentEps is the epsilon of the norms of latents, which transformers does not
// take from the configuration.
const latentEps = 1e-6

// latentAttention adds a layer's latent attention to the residual stream.
func (g *Graph) latentAttention(layer int, w *Weights) {
	b, n, r, lw := g.b, g.rows, &g.latent, w.Latent
	rope := g.a.Latent.RoPEDim
	h, x := g.hidden.Head(n), g.norm.Head(n)
	c, kRoPE, qNope, qRoPE := r.c.Head(n), r.kRoPE.Head(n), r.qNope.Head(n), r.qRoPE.Head(n)
	b.RMSNorm(x, h, w.Norm, float32(g.a.NormEps))
	g.observe(doc.RoleLatent, x)
	g.dsts[0], g.dsts[1] = c, kRoPE
	g.weights[0], g.weights[1] = &lw.Latent, &lw.KRoPE
	if lw.QA.N > 0 {
		qa := r.qa.Head(n)
		g.dsts[2], g.weights[2] = qa, &lw.QA
		b.Linears(g.dsts[:3], x, g.weights[:3])
		b.RMSNorm(qa, qa, lw.QANorm, latentEps)
		g.observe(doc.RoleQNope, qa)
		g.dsts[0], g.dsts[1] = qNope, qRoPE
		g.weights[0], g.weights[1] = &lw.QNope, &lw.QRoPE
		b.Linears(g.dsts[:2], qa, g.weights[:2])
	} else {
		g.observe(doc.RoleQNope, x)
		g.dsts[2], g.dsts[3] = qNope, qRoPE
		g.weights[2], g.weights[3] = &lw.QNope, &lw.QRoPE
		b.Linears(g.dsts[:4], x, g.weights[:4])
	}
	b.RMSNorm(c, c, lw.LatentNorm, latentEps)
	b.RoPE(qRoPE, rope, g.pos, g.freq)
	b.RoPE(kRoPE, rope, g.pos, g.freq)
	g.observe(doc.RoleKUp, qNope)
	b.HeadLinear(r.qUp.Head(n), qNope, &lw.KUp, g.a.Heads)
	b.Concat(r.query.Head(n), r.qUp.Head(n), qRoPE, g.a.Heads)
	b.Concat(r.key.Head(n), c, kRoPE, 1)
	out, values := r.out.Head(n), r.values.Head(n)
	b.Attention(out, r.query.Head(n), r.key.Head(n), backend.Tensor{}, g.kv[layer], g.pos, g.attentionSpec(layer, w))
	g.observe(doc.RoleVUp, out)
	b.HeadLinear(values, out, &lw.VUp, g.a.Heads)
	g.observe(doc.RoleO, values)
	b.Linear(x, values, &w.O)
	b.Add(h, x)
}
