package synth

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Losses says how a made-up model loses quality.
type Losses struct {
	Seed            uint64
	SensitiveLayers []int   // lose 4 times as much
	Spread          float64 // of the losses of layers and ops around their mean, as the deviation of the logarithm; 0: 0.5
	Skew            float64 // exponent of the Zipf-like gate masses of a layer's experts; 0: 0.7; negative: all alike
	ScaleType       string  // "": bf16
}

// klAtZeroBits is the KL that all ops together would have at 0 bits if the
// law of 6 dB per bit held down there: a model then loses 0.05 nats per token
// at 3 bits and 0.0125 at 4.
const klAtZeroBits = 3.2

// klFloor is the KL below which a calibration of that size could tell nothing.
const klFloor = 1e-6

// sensitiveFactor multiplies the losses of sensitive layers.
const sensitiveFactor = 4

// maxLosses bounds Spread and Skew. Beyond it losses leave what a number can
// hold, or are all 0 but one.
const maxLosses = 10

// Table makes up the table of a profile. A level's KL falls as 4^-bits (6 dB
// per bit); a residual counts for a bit less than it has, as measured
// (2.5 + 3.5 bits reach what a dedicated code of 4.5 reaches). Ops differ by
// a random factor; experts by their gate mass.
func Table(p *doc.Profile, o Losses) (*doc.Table, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	o.Spread = cmp.Or(o.Spread, 0.5)
	o.Skew = cmp.Or(o.Skew, 0.7)
	o.ScaleType = cmp.Or(o.ScaleType, "bf16")
	for _, l := range o.SensitiveLayers {
		if l < 0 || l >= p.Architecture.Layers {
			return nil, &ShapeError{"sensitive-layers", fmt.Sprintf("layer %d: the model has %d", l, p.Architecture.Layers)}
		}
	}
	for _, n := range []struct {
		flag  string
		value float64
	}{{"spread", o.Spread}, {"skew", o.Skew}} {
		if !(math.Abs(n.value) <= maxLosses) {
			return nil, &ShapeError{n.flag, fmt.Sprintf("%v: want %d to %d", n.value, -maxLosses, maxLosses)}
		}
	}
	t := &doc.Table{
		Format:    doc.FormatTable,
		Synthetic: true,
		Profile:   *p,
		Data:      []doc.DataPart{},
		Floor:     klFloor,
		Link:      doc.Link{Source: "additive", Scale: 1, Exponent: 1},
		Notes:     p.Annotations,
	}
	m := maker{table: t, losses: o, bits: addLevels(t, o.ScaleType), random: rand.New(rand.NewPCG(o.Seed, 0x5b))}
	if err := m.items(); err != nil {
		return nil, err
	}
	t.KVCaches = kvLosses(p)
	return t, t.Validate()
}

// addLevels gives the table the levels of a thorough calibration, and returns
// the bits that each is worth.
func addLevels(t *doc.Table, scale string) []float64 {
	var worth []float64
	level := func(bits float64, encodings ...string) {
		t.Levels = append(t.Levels, doc.Level{ID: doc.LevelID(encodings), Encodings: encodings})
		worth = append(worth, bits)
	}
	encode := func(bits int, residual bool) string {
		e := doc.Encoding{Bits: bits, Group: 64, Scale: scale, Fit: "lsq", FitVersion: 1, Residual: residual}
		e.ID = doc.EncodingID(&e)
		t.Encodings = append(t.Encodings, e)
		return e.ID
	}
	dedicated := map[int]string{}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		dedicated[bits] = encode(bits, false)
		level(float64(bits), dedicated[bits])
	}
	residual := map[int]string{}
	for _, bits := range []int{2, 3, 4} {
		residual[bits] = encode(bits, true)
	}
	for _, s := range [][2]int{{2, 2}, {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 2}, {4, 4}} {
		level(float64(s[0]+s[1])-1, dedicated[s[0]], residual[s[1]])
	}
	dense := doc.Encoding{ID: scale, Bits: 16, Scale: scale, Fit: "none"}
	t.Encodings = append(t.Encodings, dense)
	level(16, dense.ID)
	return worth
}

// klOfF16KV is what a KV cache in f16 loses against one in f32: about as much
// as its 11 bits would in all weights.
const klOfF16KV = 1e-6

// kvLosses makes up what the types of KV cache lose.
func kvLosses(p *doc.Profile) (losses []doc.KVLoss) {
	for _, kv := range p.KVCaches {
		l := doc.KVLoss{Type: kv.Type, Source: doc.SourceSynthetic}
		if kv.Type != "f32" {
			l.KL, l.KLError = klOfF16KV, klOfF16KV/20
		}
		losses = append(losses, l)
	}
	return losses
}

// maker makes up the items of one table.
type maker struct {
	table  *doc.Table
	losses Losses
	bits   []float64 // that each level is worth
	random *rand.Rand
}

// weights of kinds in the loss of a whole model, before their parameters
// count: attention and head lose more per parameter than experts.
func kindWeight(k doc.Kind) float64 {
	switch k {
	case doc.KindAttention, doc.KindMoEShared:
		return 3
	case doc.KindLMHead:
		return 2
	case doc.KindEmbedding:
		return 0.5
	}
	return 1
}

func (m *maker) items() error {
	p := &m.table.Profile
	weight := make([]float64, len(p.Ops)) // of each op, experts by layer and mass
	var sum float64
	layerFactor := make([]float64, p.Architecture.Layers)
	for l := range layerFactor {
		layerFactor[l] = m.spread()
		if slices.Contains(m.losses.SensitiveLayers, l) {
			layerFactor[l] *= sensitiveFactor
		}
	}
	routing := map[int]*routing{}
	for i := range p.Ops {
		op := &p.Ops[i]
		if !coded(op) {
			continue
		}
		w := kindWeight(op.Kind) * float64(op.Parameters) * m.spread()
		if op.Layer >= 0 {
			w *= layerFactor[op.Layer]
		}
		if op.Kind == doc.KindMoEExpert {
			if routing[op.Layer] == nil {
				routing[op.Layer] = m.route()
			}
			// A layer of experts loses as much as its experts of one token.
			w *= float64(p.Architecture.ExpertsPerToken) * routing[op.Layer].mass[op.Expert]
		}
		weight[i] = w
		sum += w
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		if len(op.Tensors) == 0 {
			continue
		}
		it := doc.Item{Op: op.ID}
		if r := routing[op.Layer]; op.Kind == doc.KindMoEExpert {
			it.GateMass, it.HitShare = r.mass[op.Expert], r.share[op.Expert]
		}
		for j := range m.table.Levels {
			level := &m.table.Levels[j]
			if !coded(op) && j < len(m.table.Levels)-1 {
				continue // dense at every level
			}
			ram, disk, err := footprint.LevelBytes(op, level, m.table.Encodings)
			if err != nil {
				return err
			}
			kl := klAtZeroBits * weight[i] / sum * math.Pow(4, -m.bits[j])
			if m.bits[j] >= 16 {
				kl = 0 // the source itself
			}
			it.Levels = append(it.Levels, doc.ItemLevel{
				Level: level.ID, RAMBytes: ram, DiskBytes: disk, KL: kl, KLError: kl / 20, Source: doc.SourceSynthetic,
			})
		}
		m.table.Items = append(m.table.Items, it)
	}
	m.table.Reuse = []doc.ReuseCurve{}
	for _, l := range p.Architecture.MoELayers {
		m.table.Reuse = append(m.table.Reuse, doc.ReuseCurve{Layer: l, HitRate: routing[l].curve()})
	}
	return nil
}

// coded reports whether any tensor of op is ever coded.
func coded(op *doc.Op) bool {
	return slices.ContainsFunc(op.Tensors, func(t doc.Tensor) bool { return !t.Keep })
}

// spread is a random factor around 1, log-normal.
func (m *maker) spread() float64 {
	return math.Exp(m.losses.Spread * m.random.NormFloat64())
}

// routing is how a layer's tokens spread over its experts.
type routing struct {
	mass  []float64 // gate mass; sums to 1
	share []float64 // of tokens that reach the expert; sums to top-k
}

// route makes up the routing of a layer: Zipf-like, in random order.
func (m *maker) route() *routing {
	a := &m.table.Profile.Architecture
	r := &routing{mass: make([]float64, a.Experts), share: make([]float64, a.Experts)}
	var sum float64
	for rank, e := range m.random.Perm(a.Experts) {
		r.mass[e] = math.Pow(float64(rank+1), -max(0, m.losses.Skew))
		sum += r.mass[e]
	}
	for e := range r.mass {
		r.mass[e] /= sum
	}
	// A token reaches an expert once: shares are proportional to mass, cut at
	// 1, and what is cut goes to the others.
	scale := float64(a.ExpertsPerToken)
	for range 64 {
		var total, open float64
		for e, w := range r.mass {
			r.share[e] = min(1, scale*w)
			total += r.share[e]
			if r.share[e] < 1 {
				open += r.share[e]
			}
		}
		lacks := float64(a.ExpertsPerToken) - total
		if open == 0 || lacks <= 1e-12 {
			break
		}
		scale *= 1 + lacks/open
	}
	return r
}

// curve is the hit rate of an LRU of 0..experts slots if tokens were routed
// independently: an expert is there if it was asked for within the cache's
// characteristic time (Che, Tung, Wang 2002).
func (r *routing) curve() []float64 {
	n := len(r.share)
	hit := make([]float64, n+1)
	for slots := 1; slots <= n; slots++ {
		lo, hi := 0.0, 1e9
		for range 60 {
			t := (lo + hi) / 2
			if held, _ := r.within(t); held < float64(slots) {
				lo = t
			} else {
				hi = t
			}
		}
		_, hits := r.within(lo)
		hit[slots] = min(1, max(hit[slots-1], hits))
	}
	hit[n] = 1
	return hit
}

// within returns the expected number of experts that were asked for in the
// last t tokens, and the share of requests that go to one of them.
func (r *routing) within(t float64) (held, hits float64) {
	var sum float64
	for _, p := range r.share {
		asked := -math.Expm1(-p * t)
		held += asked
		hits += p * asked
		sum += p
	}
	return held, hits / sum
}
