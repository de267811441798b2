package synth

import (
	"cmp"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// Weights says how made-up weights are distributed. They are plausible in
// what matters to tests and benchmarks: attention is peaked, so that wrong
// positions or masks show; experts have heavy tails; a few experts of a layer
// serve most tokens.
type Weights struct {
	Seed uint64
	// Peak is the standard deviation of the attention's logits; 0: 3.
	Peak float64
	// Skew is the standard deviation of the router logits of a layer's
	// experts, averaged over tokens; 0: 1; negative: none.
	Skew float64
	// ShardBytes splits the weights into files of at most so many bytes; 0: 2 GiB.
	ShardBytes int64
	// Progress is told the bytes of every piece that is written; may be nil.
	Progress func(bytes int64)
}

func (w Weights) withDefaults() Weights {
	w.Peak = cmp.Or(w.Peak, 3)
	w.Skew = max(cmp.Or(w.Skew, 1), 0)
	w.ShardBytes = cmp.Or(w.ShardBytes, defaultShardBytes)
	return w
}

// Deviations that give the activations of a residual stream whose entries
// have deviation 1 after the embedding.
const (
	normSpread   = 0.3 // of the logarithm of norm weights
	expertSpread = 0.2 // of the logarithm of an expert's scale
	biasSpread   = 0.1
	branch       = 0.5 // what attention or MLP adds, as a part of the embedding
	gluDeviation = 0.6 // of silu(a)*b where a and b have deviation 1
	headSpread   = 3   // of the logits
	// common is the part of a direction that all embeddings share: through
	// it a router, which has no bias, prefers experts.
	common = 0.5
	tails  = 0.1 // of expert weights: h of Tukey's g-and-h distribution
	// unusedLogit, times what is left of the common part at the end, is taken
	// from the logits of ids that no text has, so that they are not sampled.
	unusedLogit = 30
)

// generator makes up the tensors of one checkpoint.
type generator struct {
	profile *doc.Profile
	weights Weights
	format  plane.Format // of every weight: dense
	codes   codes        // of the tensor that is being made
	normal  *quantiles
	heavy   *quantiles
	shared  []float32 // the direction that all embeddings share, of signs
	signs   []float32 // of the final norm's weights
	scale   float64   // deviation of the embedding
}

func newGenerator(p *doc.Profile, w Weights) *generator {
	a := &p.Architecture
	g := &generator{profile: p, weights: w, normal: newQuantiles(0), heavy: newQuantiles(tails), scale: 1}
	g.format = weightFormat(p)
	g.shared = randomSigns(g.random("shared direction"), a.HiddenSize)
	g.signs = slices.Repeat([]float32{1}, a.HiddenSize)
	if a.TiedEmbedding {
		// The embedding is the head as well. Signs in between keep a token
		// from predicting itself.
		g.scale = headSpread / math.Sqrt(float64(a.HiddenSize))
		g.signs = randomSigns(g.random("final norm signs"), a.HiddenSize)
	}
	return g
}

func randomSigns(rng *rand.PCG, n int) []float32 {
	signs := make([]float32, n)
	for i := range signs {
		signs[i] = float32(2*int(rng.Uint64()>>63) - 1)
	}
	return signs
}

// encode writes values as the checkpoint has them.
func (g *generator) encode(dst []byte, src []float32) {
	if g.format.Bits == 32 {
		plane.EncodeFloat32(dst, src)
		return
	}
	g.format.Scale.Encode(dst, src)
}

// random is the source of randomness of one tensor: it depends on nothing but
// the seed and the name.
func (g *generator) random(name string) *rand.PCG {
	h := fnv.New64a()
	io.WriteString(h, name)
	return rand.NewPCG(g.weights.Seed, h.Sum64())
}

// recipe makes the rows of one tensor, which must be asked for in their order.
type recipe struct {
	rng  *rand.PCG
	fill func(row int, dst []float32) // nil: values drawn from a distribution, one by one
	from *quantiles
	// deviation of the values of from.
	deviation float64
}

// row makes a row.
func (r *recipe) row(row int, dst []float32) {
	if r.fill != nil {
		r.fill(row, dst)
		return
	}
	r.from.fill(r.rng, dst, r.deviation)
}

// recipe says how a tensor is made.
func (g *generator) recipe(op *doc.Op, t *doc.Tensor) recipe {
	rng := g.random(t.Source.Name)
	perInput := 1 / math.Sqrt(float64(t.Cols))
	rule := func(fill func(int, []float32)) recipe { return recipe{rng: rng, fill: fill} }
	switch {
	case op.Kind == doc.KindEmbedding:
		return rule(g.embedding(rng))
	case op.Kind == doc.KindLMHead:
		return rule(g.head(rng))
	case op.Kind == doc.KindNorm:
		return rule(g.finalNorm(rng))
	case op.Kind == doc.KindMoERouter && t.Role == doc.RoleWeight:
		return rule(g.router(rng, op))
	case t.Role == doc.RoleNorm || t.Role == doc.RoleKNorm:
		return rule(g.norm(rng, 1))
	case t.Role == doc.RoleQNorm:
		return rule(g.norm(rng, g.weights.Peak))
	}
	plain := recipe{rng: rng, from: g.normal, deviation: perInput}
	if op.Kind == doc.KindMoEExpert {
		plain.from = g.heavy
	}
	switch t.Role {
	case doc.RoleQBias, doc.RoleKBias, doc.RoleVBias:
		plain.deviation = biasSpread
	case doc.RoleOBias:
		plain.deviation = biasSpread * branch * g.scale
	case doc.RoleQ:
		if !g.profile.Architecture.QKNorm {
			plain.deviation *= g.weights.Peak
		}
	case doc.RoleO:
		plain.deviation *= branch * g.scale
	case doc.RoleDown:
		plain.deviation *= g.expertScale(op) * branch * g.scale / gluDeviation
	}
	return plain
}

// norm makes the weights of a norm, all positive, around scale.
func (g *generator) norm(rng *rand.PCG, scale float64) func(int, []float32) {
	return func(_ int, dst []float32) {
		g.normal.fill(rng, dst, normSpread)
		for i, x := range dst {
			dst[i] = float32(scale * math.Exp(float64(x)))
		}
	}
}

// finalNorm is norm with signs.
func (g *generator) finalNorm(rng *rand.PCG) func(int, []float32) {
	positive := g.norm(rng, 1)
	return func(row int, dst []float32) {
		positive(row, dst)
		for i, sign := range g.signs {
			dst[i] *= sign
		}
	}
}

// embedding makes rows that share a direction.
func (g *generator) embedding(rng *rand.PCG) func(int, []float32) {
	return func(row int, dst []float32) {
		if g.profile.Architecture.TiedEmbedding && !used(row) {
			g.unused(dst)
			return
		}
		g.normal.fill(rng, dst, g.scale*math.Sqrt(1-common*common))
		g.addShared(dst, g.scale*common)
	}
}

func (g *generator) head(rng *rand.PCG) func(int, []float32) {
	deviation := headSpread / math.Sqrt(float64(g.profile.Architecture.HiddenSize))
	return func(row int, dst []float32) {
		if !used(row) {
			g.unused(dst)
			return
		}
		g.normal.fill(rng, dst, deviation)
	}
}

// used reports whether a text has a token id: specials would end it, and the
// tokenizer has no others.
func used(id int) bool { return id >= specials && id < tokens }

// unused makes a row of the head whose logit is low whatever the text.
func (g *generator) unused(dst []float32) {
	for i, sign := range g.shared {
		dst[i] = -unusedLogit / float32(len(dst)) * sign * g.signs[i]
	}
}

// router makes rows that see the direction that the embeddings share, each
// with its own preference.
func (g *generator) router(rng *rand.PCG, op *doc.Op) func(int, []float32) {
	perInput := 1 / math.Sqrt(float64(g.profile.Architecture.HiddenSize))
	preference := make([]float32, g.profile.Architecture.Experts)
	g.normal.fill(g.random(op.ID+" preference"), preference, g.weights.Skew/common)
	return func(row int, dst []float32) {
		g.normal.fill(rng, dst, perInput)
		g.addShared(dst, float64(preference[row])/float64(len(dst)))
	}
}

func (g *generator) addShared(dst []float32, part float64) {
	for i, sign := range g.shared {
		dst[i] += float32(part) * sign
	}
}

// expertScale differs from expert to expert.
func (g *generator) expertScale(op *doc.Op) float64 {
	if op.Kind != doc.KindMoEExpert {
		return 1
	}
	var x [1]float32
	g.normal.fill(g.random(op.ID+" scale"), x[:], expertSpread)
	return math.Exp(float64(x[0]))
}
