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
	encode  func(dst []byte, src []float32)
	normal  *quantiles
	heavy   *quantiles
	shared  []float32 // the direction that all embeddings share, of signs
	signs   []float32 // of the final norm's weights
	scale   float64   // deviation of the embedding
}

func newGenerator(p *doc.Profile, w Weights) *generator {
	a := &p.Architecture
	g := &generator{profile: p, weights: w, normal: newQuantiles(0), heavy: newQuantiles(tails), scale: 1}
	switch p.Ops[0].Tensors[0].DType {
	case "f32":
		g.encode = plane.EncodeFloat32
	case "f16":
		g.encode = plane.F16.Encode
	default:
		g.encode = plane.BF16.Encode
	}
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

// random is the source of randomness of one tensor: it depends on nothing but
// the seed and the name.
func (g *generator) random(name string) *rand.PCG {
	h := fnv.New64a()
	io.WriteString(h, name)
	return rand.NewPCG(g.weights.Seed, h.Sum64())
}

// filler returns what fills the rows of a tensor, which must be asked for in
// their order.
func (g *generator) filler(op *doc.Op, t *doc.Tensor) func(row int, dst []float32) {
	rng := g.random(t.Source.Name)
	perInput := 1 / math.Sqrt(float64(t.Cols))
	switch {
	case op.Kind == doc.KindEmbedding:
		return g.embedding(rng)
	case op.Kind == doc.KindLMHead:
		return g.head(rng)
	case op.Kind == doc.KindNorm:
		return g.finalNorm(rng)
	case op.Kind == doc.KindMoERouter && t.Role == doc.RoleWeight:
		return g.router(rng, op)
	}
	switch t.Role {
	case doc.RoleNorm, doc.RoleKNorm:
		return g.norm(rng, 1)
	case doc.RoleQNorm:
		return g.norm(rng, g.weights.Peak)
	case doc.RoleQBias, doc.RoleKBias, doc.RoleVBias:
		return g.plain(rng, g.normal, biasSpread)
	case doc.RoleOBias:
		return g.plain(rng, g.normal, biasSpread*branch*g.scale)
	case doc.RoleQ:
		if !g.profile.Architecture.QKNorm {
			return g.plain(rng, g.normal, g.weights.Peak*perInput)
		}
	case doc.RoleO:
		return g.plain(rng, g.normal, branch*g.scale*perInput)
	case doc.RoleDown:
		return g.plain(rng, g.tensorTails(op), g.expertScale(op)*branch*g.scale/gluDeviation*perInput)
	case doc.RoleGate, doc.RoleUp:
		return g.plain(rng, g.tensorTails(op), perInput)
	}
	return g.plain(rng, g.normal, perInput)
}

func (g *generator) plain(rng *rand.PCG, q *quantiles, deviation float64) func(int, []float32) {
	return func(_ int, dst []float32) { q.fill(rng, dst, deviation) }
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

func (g *generator) tensorTails(op *doc.Op) *quantiles {
	if op.Kind == doc.KindMoEExpert {
		return g.heavy
	}
	return g.normal
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

// quantiles is a distribution of mean 0 and deviation 1, as 2^16 equally
// likely values: 16 random bits and a look-up take a fraction of the time of
// computing one.
type quantiles [1 << 16]float32

// newQuantiles makes a normal distribution, or with h > 0 one of heavier tails:
// Tukey's x*exp(h*x*x/2).
func newQuantiles(h float64) *quantiles {
	q, sum := new(quantiles), 0.0
	for i := range q {
		x := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(q))-1)
		x *= math.Exp(h * x * x / 2)
		q[i] = float32(x)
		sum += x * x
	}
	deviation := float32(math.Sqrt(sum / float64(len(q))))
	for i := range q {
		q[i] /= deviation
	}
	return q
}

// fill draws the values of dst.
func (q *quantiles) fill(rng *rand.PCG, dst []float32, deviation float64) {
	scale := float32(deviation)
	for len(dst) >= 4 {
		u := rng.Uint64()
		dst[0] = scale * q[uint16(u)]
		dst[1] = scale * q[uint16(u>>16)]
		dst[2] = scale * q[uint16(u>>32)]
		dst[3] = scale * q[uint16(u>>48)]
		dst = dst[4:]
	}
	for i := range dst {
		dst[i] = scale * q[uint16(rng.Uint64())]
	}
}
