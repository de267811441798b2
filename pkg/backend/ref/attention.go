package ref

import (
	"fmt"
	"math"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// cache holds keys and values as [heads][context][headDim], in one of two
// types. In a latent one values are views of keys.
type cache struct {
	spec     backend.KVSpec
	k32, v32 []float32
	k16, v16 []uint16
}

func (b *Backend) KV(spec backend.KVSpec) (backend.KV, error) {
	handle, err := b.table.AddKV(spec)
	if err != nil {
		return backend.KV{}, err
	}
	n := spec.Heads * spec.Context * spec.HeadDim
	c := cache{spec: spec}
	size := int64(n) * backend.KVWidth(spec.Type)
	planes := int64(2)
	if spec.Latent > 0 {
		planes = 1
	}
	m, err := b.hold(planes * size)
	if err != nil {
		return backend.KV{}, fmt.Errorf("KV cache: %w", err)
	}
	if spec.Type == "f16" {
		c.k16, c.v16 = floats[uint16](m[:size]), floats[uint16](m[int64(len(m))-size:])
	} else {
		c.k32, c.v32 = floats[float32](m[:size]), floats[float32](m[int64(len(m))-size:])
	}
	b.caches = append(b.caches, c)
	for i := range b.workers {
		grow(b, &b.workers[i].scores, spec.Context)
		grow(b, &b.workers[i].sums, spec.HeadDim)
	}
	return handle, nil
}

// store writes one head's vector of a position.
func (c *cache) store(at int, k, v []float32) {
	if c.k16 == nil {
		copy(c.k32[at:], k)
		copy(c.v32[at:], v)
		return
	}
	for i := range k {
		c.k16[at+i], c.v16[at+i] = plane.F16.Bits(k[i]), plane.F16.Bits(v[i])
	}
}

// key and value read the vector at an index into dst, or return a view.
func (c *cache) key(dst []float32, at int) []float32   { return read(dst, c.k32, c.k16, at) }
func (c *cache) value(dst []float32, at int) []float32 { return read(dst, c.v32, c.v16, at) }

func read(dst, from32 []float32, from16 []uint16, at int) []float32 {
	if from16 == nil {
		return from32[at:][:len(dst)]
	}
	for i := range dst {
		dst[i] = plane.F16.Value(from16[at+i])
	}
	return dst
}

func (b *Backend) Attention(dst, q, k, v backend.Tensor, kv backend.KV, pos int, s backend.AttentionSpec) {
	if !b.ok("attention", b.table.Attention(dst, q, k, v, kv, pos, s)) {
		return
	}
	c := &b.caches[kv.ID-1]
	qs, ks, ys := b.tensor(q), b.tensor(k), b.tensor(dst)
	d, context := s.HeadDim, c.spec.Context
	vs, value := ks, c.spec.Latent
	if value == 0 {
		vs, value = b.tensor(v), d
	}
	var sinks []float32
	if s.Sinks.ID != 0 {
		sinks = b.vectors[s.Sinks.ID-1]
	}
	for r := range q.Rows {
		for h := range s.KVHeads {
			from := r*k.Cols + h*d
			c.store((h*context+pos+r)*d, ks[from:from+d], vs[from:from+d])
		}
	}
	group := s.Heads / s.KVHeads
	b.parallel(q.Rows*s.Heads, 3*d*(pos+q.Rows), func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			r, h := i/s.Heads, i%s.Heads
			y, q := ys[(r*s.Heads+h)*value:][:value], qs[(r*s.Heads+h)*d:][:d]
			first, sink := 0, math.Inf(-1)
			if sinks != nil {
				sink = float64(sinks[h])
			}
			if s.Window > 0 {
				first = max(0, pos+r+1-s.Window)
			}
			w.attend(y, q, c, h/group*context, first, pos+r+1, s.Scale, sink)
		}
	})
}

// attend computes softmax(scale * q.K, sink) V for one query over the
// positions [first, end) of a head whose vectors start at index base.
func (w *worker) attend(y, q []float32, c *cache, base, first, end int, scale float32, sink float64) {
	d := len(q)
	var buf [1024]float32 // the largest head
	scores := w.scores[:end-first]
	highest := sink
	for i := range scores {
		scores[i] = float64(scale) * dot(c.key(buf[:d], (base+first+i)*d), q)
		highest = max(highest, scores[i])
	}
	total := math.Exp(sink - highest)
	sums := w.sums[:len(y)]
	clear(sums)
	for i, score := range scores {
		p := math.Exp(score - highest)
		total += p
		for j, v := range c.value(buf[:len(y)], (base+first+i)*d) {
			sums[j] += p * float64(v)
		}
	}
	for j := range y {
		y[j] = float32(sums[j] / total)
	}
}
