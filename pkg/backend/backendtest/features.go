package backendtest

import (
	"math"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// lacks reports whether the backend does not have a feature. Then op must be
// an error and not a wrong result.
func (b *bench) lacks(f backend.Feature, op func()) bool {
	b.Helper()
	p, ok := b.Backend.(backend.Partial)
	if !ok || !p.Lacks(f) {
		return false
	}
	op()
	if b.Sync() == nil {
		b.Errorf("the backend lacks %s, and computed something", f)
	}
	return true
}

func (c Config) headLinear(t *testing.T) {
	b := c.bench(t)
	for _, f := range []plane.Format{{Bits: 32}, {Bits: 16, Scale: plane.BF16}, {Bits: 3, Group: 32}, {Bits: 4, Group: 64, Scale: plane.F16}} {
		for _, s := range []struct{ rows, heads, in, out int }{{1, 3, 64, 40}, {5, 1, 128, 7}, {300, 4, 64, 32}} {
			base, residual := b.matrix(s.heads*s.out, s.in, f), b.matrix(s.heads*s.out, s.in, plane.Format{Bits: 2, Group: 32})
			w := b.linear(nil, base, residual)
			values := b.normal(s.rows*s.heads*s.in, 1)
			x, dst := b.register(s.rows, s.heads*s.in, values), b.register(s.rows, s.heads*s.out, nil)
			if b.lacks(backend.Latents, func() { b.HeadLinear(dst, x, w, s.heads) }) {
				return
			}
			b.HeadLinear(dst, x, w, s.heads)
			got := b.read(dst)
			for r := range s.rows {
				for i := range s.heads * s.out {
					in := values[(r*s.heads+i/s.out)*s.in:][:s.in]
					want, bound := b.product(in, i, nil, base, residual)
					b.near(got[r*s.heads*s.out+i], want, bound, "%s, %d heads: row %d, output %d", describe(f, s.out, s.in, s.rows), s.heads, r, i)
				}
			}
		}
	}
}

func (c Config) concat(t *testing.T) {
	b := c.bench(t)
	const rows, heads, nx, ny = 3, 2, 5, 4
	xs, ys := b.normal(rows*heads*nx, 1), b.normal(rows*heads*ny, 1)
	x, y, dst := b.register(rows, heads*nx, xs), b.register(rows, heads*ny, ys), b.register(rows, heads*(nx+ny), nil)
	if b.lacks(backend.Latents, func() { b.Concat(dst, x, y, heads) }) {
		return
	}
	b.Concat(dst, x, y, heads)
	for i, v := range b.read(dst) {
		head, at := i/(nx+ny), i%(nx+ny)
		want := ys[head*ny+max(0, at-nx)]
		if at < nx {
			want = xs[head*nx+at]
		}
		if v != want {
			t.Fatalf("value %d is %v, want %v", i, v, want)
		}
	}
}

// slowAttention is attention by its definition, over keys and values of one
// head as [position][d], with a sink of weight exp(sink) and no value.
func slowAttention(q []float64, key, value func(position, i int) float64, first, end, values int, scale, sink, rounding float64) (y, bound []float64) {
	highest, magnitude := sink, math.Abs(sink)
	scores := make([]float64, end-first)
	for i := range scores {
		var all float64
		for j, v := range q {
			p := v * key(first+i, j)
			scores[i] += scale * p
			all += scale * abs(p)
		}
		highest, magnitude = max(highest, scores[i]), max(magnitude, all)
	}
	if math.IsInf(magnitude, 1) { // no sink
		magnitude = 0
		for i := range scores {
			var all float64
			for j, v := range q {
				all += scale * abs(v*key(first+i, j))
			}
			magnitude = max(magnitude, all)
		}
	}
	total := math.Exp(sink - highest)
	y, bound = make([]float64, values), make([]float64, values)
	for i, s := range scores {
		p := math.Exp(s - highest)
		total += p
		for j := range y {
			v := p * value(first+i, j)
			y[j] += v
			bound[j] += abs(v)
		}
	}
	for j := range y {
		y[j] /= total
		bound[j] = bound[j]/total*(2*rounding*magnitude+8*rounding) + 1e-37
	}
	return y, bound
}

// widen is a float64 copy.
func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func (c Config) attentionSinks(t *testing.T) {
	b := c.bench(t)
	const positions, d = 90, 24
	s := backend.AttentionSpec{Heads: 6, KVHeads: 2, HeadDim: d, Window: 70, Scale: 0.4}
	sinks := []float32{0, 3, -40, 40, 1, -1}
	s.Sinks = b.vector(sinks)
	qs, ks, vs := b.normal(positions*6*d, 1), b.normal(positions*2*d, 1), b.normal(positions*2*d, 1)
	q, k, v, dst := b.register(positions, 6*d, qs), b.register(positions, 2*d, ks), b.register(positions, 2*d, vs), b.register(positions, 6*d, nil)
	kv, err := b.KV(backend.KVSpec{Heads: 2, HeadDim: d, Context: positions, Type: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	if b.lacks(backend.Sinks, func() { b.Attention(dst, q, k, v, kv, 0, s) }) {
		return
	}
	b.Attention(dst, q, k, v, kv, 0, s)
	got := b.read(dst)
	for p := range positions {
		for h, sink := range sinks {
			at := (p*6 + h) * d
			of := func(x []float32) func(int, int) float64 {
				return func(position, i int) float64 { return float64(x[(position*2+h/3)*d+i]) }
			}
			want, bound := slowAttention(widen(qs[at:at+d]), of(ks), of(vs), max(0, p+1-s.Window), p+1, d, float64(s.Scale), float64(sink), b.Rounding)
			for j := range want {
				b.near(got[at+j], want[j], bound[j], "position %d, head %d, value %d", p, h, j)
			}
		}
	}
}

func (c Config) attentionLatent(t *testing.T) {
	for _, s := range []struct {
		kind             string
		heads, d, latent int
	}{{"f32", 5, 48, 32}, {"f16", 3, 40, 24}, {"f32", 6, 320, 256}, {"f32", 1, 20, 7}} {
		b := c.bench(t)
		const positions = 67
		spec := backend.AttentionSpec{Heads: s.heads, KVHeads: 1, HeadDim: s.d, Scale: float32(2 / math.Sqrt(float64(s.d)))}
		qs, ks := b.normal(positions*s.heads*s.d, 1), b.normal(positions*s.d, 1)
		q, k, dst := b.register(positions, s.heads*s.d, qs), b.register(positions, s.d, ks), b.register(positions, s.heads*s.latent, nil)
		before := b.Overhead()
		cache := backend.KVSpec{Heads: 1, HeadDim: s.d, Context: positions, Type: s.kind, Latent: s.latent}
		kv, err := b.KV(cache)
		if b.lacks(backend.Latents, func() { b.Attention(dst, q, k, backend.Tensor{}, kv, 0, spec) }) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		size := int64(positions*s.d) * backend.KVWidth(s.kind)
		if held := b.Overhead() - before; held > size+2*(64<<10)+8*int64(s.d)*positions {
			t.Errorf("%+v: the cache of %d bytes holds %d", s, size, held)
		}
		// In steps, as a run does.
		var got []float32
		for pos := 0; pos < positions; {
			n := min(1+pos/2, positions-pos)
			part := b.register(n, s.heads*s.d, qs[pos*s.heads*s.d:][:n*s.heads*s.d])
			out := b.register(n, s.heads*s.latent, nil)
			b.Attention(out, part, b.register(n, s.d, ks[pos*s.d:][:n*s.d]), backend.Tensor{}, kv, pos, spec)
			got = append(got, b.read(out)...)
			pos += n
		}
		if s.kind == "f16" {
			for i := range ks {
				ks[i] = plane.F16.Round(ks[i])
			}
		}
		key := func(position, i int) float64 { return float64(ks[position*s.d+i]) }
		for p := range positions {
			for h := range s.heads {
				own := widen(qs[(p*s.heads+h)*s.d:][:s.d])
				want, bound := slowAttention(own, key, key, 0, p+1, s.latent, float64(spec.Scale), math.Inf(-1), b.Rounding)
				for j := range want {
					b.near(got[(p*s.heads+h)*s.latent+j], want[j], bound[j], "%+v: position %d, head %d, value %d", s, p, h, j)
				}
			}
		}
		b.Attention(dst, q, k, backend.Tensor{}, kv, 0, spec)
		if s.kind == "f32" && !b.same(got, b.read(dst)) {
			t.Errorf("%+v: one step gives other bits than several", s)
		}
	}
}

func (c Config) expertsClamped(t *testing.T) {
	b := c.bench(t)
	const n = 64
	f := plane.Format{Bits: 32}
	gate, up, down := b.matrix(n, n, f), b.matrix(n, n, f), b.matrix(n, n, f)
	// Identities show the activation alone.
	for _, m := range []*matrix{gate, up, down} {
		clear(m.values)
		for i := range n {
			m.values[i*n+i] = 1
		}
		plane.EncodeFloat32(m.data, m.values)
	}
	bias := b.normal(n, 3)
	act := backend.Activation{Alpha: 1.702, Limit: 2}
	x, out := b.register(2, n, b.normal(2*n, 3)), b.register(2, n, nil)
	values := b.read(x)
	calls := []backend.ExpertCall{{
		Gate: b.linear(nil, gate), Up: b.linear(bias, up), Down: b.linear(nil, down), Act: act, InRows: []int32{0, 1}, OutRows: []int32{1, 0},
	}}
	if b.lacks(backend.ClampedGLU, func() { b.Experts(out, x, calls) }) {
		return
	}
	b.Experts(out, x, calls)
	for i, y := range b.read(out) {
		v := values[(1-i/n)*n+i%n]
		g, u := math.Min(float64(v), 2), math.Max(-2, math.Min(2, float64(v+bias[i%n])))
		want := g / (1 + math.Exp(-1.702*g)) * (u + 1)
		b.near(y, want, ulps(16, abs(want)+abs(g)), "gate and up of %v at %d", v, i)
	}
}
