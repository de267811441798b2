package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

func abs(x float64) float64 { return math.Abs(x) }

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// ulps bounds the error of an element by a few units of float32.
func ulps(n, want float64) float64 { return n*math.Abs(want)*0x1p-24 + 1e-37 }

func (c Config) rmsNorm(t *testing.T) {
	b := c.bench(t)
	for _, s := range []struct{ rows, cols, chunk int }{{1, 576, 576}, {3, 17, 17}, {40, 96, 32}, {2, 2048, 2048}} {
		values, w := b.normal(s.rows*s.cols, 3), b.normal(s.chunk, 1)
		x, dst := b.register(s.rows, s.cols, values), b.register(s.rows, s.cols, nil)
		b.RMSNorm(dst, x, b.vector(w), 1e-5)
		got := b.read(dst)
		for at := 0; at < len(values); at += s.chunk {
			var sum float64
			for _, v := range values[at : at+s.chunk] {
				sum += float64(v) * float64(v)
			}
			inv := 1 / math.Sqrt(sum/float64(s.chunk)+1e-5)
			for i := range w {
				want := float64(values[at+i]) * inv * float64(w[i])
				// The square root halves the error of the sum of squares.
				b.near(got[at+i], want, ulps(8, want)+b.Rounding/2*abs(want), "%+v at %d", s, at+i)
			}
		}
		b.RMSNorm(x, x, b.vector(w), 1e-5)
		if !slices.Equal(got, b.read(x)) {
			t.Errorf("%+v: in place gives other bits", s)
		}
	}
}

func (c Config) rope(t *testing.T) {
	b := c.bench(t)
	for _, s := range []struct{ rows, heads, headDim, pos int }{{1, 3, 64, 0}, {5, 2, 16, 1000}, {30, 1, 6, 7}, {1, 9, 64, 4000}} {
		freqs := make([]float32, s.headDim/2)
		for i := range freqs {
			freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(s.headDim)))
		}
		cols := s.heads * s.headDim
		values := b.normal(s.rows*cols, 1)
		x := b.register(s.rows, cols, values)
		b.RoPE(x, s.headDim, s.pos, freqs)
		got := b.read(x)
		for r := range s.rows {
			for h := range s.heads {
				for i, f := range freqs {
					// The angle is a float32: see the op.
					sin, cos := math.Sincos(float64(float32(s.pos+r) * f))
					at := r*cols + h*s.headDim + i
					a, c := float64(values[at]), float64(values[at+s.headDim/2])
					bound := 4 * (abs(a) + abs(c)) * 0x1p-24
					b.near(got[at], a*cos-c*sin, bound, "%+v row %d first half %d", s, r, i)
					b.near(got[at+s.headDim/2], c*cos+a*sin, bound, "%+v row %d second half %d", s, r, i)
				}
			}
		}
	}
}

// attend is attention by its definition, over keys and values as
// [position][heads*headDim]; bound is what a backend may be off by.
func attend(q []float32, ks, vs []float32, first, end, cols, at, d int, scale float32, rounding float64) (y, bound []float64) {
	scores := make([]float64, end-first)
	var magnitude float64
	highest := math.Inf(-1)
	for i := range scores {
		var sum, all float64
		for j := range d {
			p := float64(q[j]) * float64(ks[(first+i)*cols+at+j])
			sum += p
			all += abs(p)
		}
		scores[i] = float64(scale) * sum
		magnitude = max(magnitude, float64(scale)*all)
		highest = max(highest, scores[i])
	}
	var total float64
	y, bound = make([]float64, d), make([]float64, d)
	for i, s := range scores {
		p := math.Exp(s - highest)
		total += p
		for j := range d {
			v := float64(vs[(first+i)*cols+at+j])
			y[j] += p * v
			bound[j] += p * abs(v)
		}
	}
	for j := range y {
		y[j] /= total
		// An error e of a score scales its weight by exp(e).
		bound[j] = bound[j]/total*(2*rounding*magnitude+8*rounding) + 1e-37
	}
	return y, bound
}

func (c Config) attention(t *testing.T) {
	for _, kind := range []string{"f32", "f16"} {
		for _, s := range []backend.AttentionSpec{
			{Heads: 1, KVHeads: 1, HeadDim: 64},
			{Heads: 6, KVHeads: 2, HeadDim: 64},
			{Heads: 4, KVHeads: 2, HeadDim: 24, Window: 5},
			{Heads: 5, KVHeads: 1, HeadDim: 32, Window: 70},
			{Heads: 2, KVHeads: 2, HeadDim: 7},
		} {
			s.Scale = float32(2 / math.Sqrt(float64(s.HeadDim))) // peaked
			c.runAttention(t, kind, s, []int{1, 1, 37, 3, 80, 1, 27})
		}
	}
}

// runAttention fills a cache in steps of so many rows.
func (c Config) runAttention(t *testing.T, kind string, s backend.AttentionSpec, steps []int) {
	b := c.bench(t)
	positions := 0
	for _, n := range steps {
		positions += n
	}
	qCols, kvCols := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	qs, ks, vs := b.normal(positions*qCols, 1), b.normal(positions*kvCols, 1), b.normal(positions*kvCols, 1)
	q, k, v, dst := b.register(positions, qCols, nil), b.register(positions, kvCols, nil), b.register(positions, kvCols, nil), b.register(positions, qCols, nil)
	kv, err := b.KV(backend.KVSpec{Heads: s.KVHeads, HeadDim: s.HeadDim, Context: positions, Type: kind})
	if err != nil {
		t.Fatal(err)
	}
	var got []float32
	pos := 0
	for _, n := range steps {
		b.Load(q.Head(n), qs[pos*qCols:][:n*qCols])
		b.Load(k.Head(n), ks[pos*kvCols:][:n*kvCols])
		b.Load(v.Head(n), vs[pos*kvCols:][:n*kvCols])
		b.Attention(dst.Head(n), q.Head(n), k.Head(n), v.Head(n), kv, pos, s)
		got = append(got, b.read(dst.Head(n))...)
		pos += n
	}
	if kind == "f16" {
		for i := range ks {
			ks[i], vs[i] = plane.F16.Round(ks[i]), plane.F16.Round(vs[i])
		}
	}
	for p := range positions {
		first := 0
		if s.Window > 0 {
			first = max(0, p+1-s.Window)
		}
		for h := range s.Heads {
			at := p*qCols + h*s.HeadDim
			want, bound := attend(qs[at:at+s.HeadDim], ks, vs, first, p+1, kvCols, h/(s.Heads/s.KVHeads)*s.HeadDim, s.HeadDim, s.Scale, b.Rounding)
			for j := range want {
				b.near(got[at+j], want[j], bound[j], "%s %+v: position %d, head %d, value %d", kind, s, p, h, j)
			}
		}
	}
	// All at once gives the same bits.
	whole := b.register(positions, qCols, nil)
	b.Attention(whole, b.register(positions, qCols, qs), b.register(positions, kvCols, ks), b.register(positions, kvCols, vs), kv, 0, s)
	if !b.same(got, b.read(whole)) {
		t.Errorf("%s %+v: one step gives other bits than several", kind, s)
	}
}

// A lower position overwrites, as when a prefix is used again.
func (c Config) attentionRewind(t *testing.T) {
	b := c.bench(t)
	s := backend.AttentionSpec{Heads: 2, KVHeads: 1, HeadDim: 32, Scale: 0.3}
	run := func(kv backend.KV, pos, n int, seed float64) []float32 {
		fill := func(cols int) backend.Tensor {
			values := make([]float32, n*cols)
			for i := range values {
				values[i] = float32(math.Sin(seed + float64(pos*cols+i)))
			}
			return b.register(n, cols, values)
		}
		dst := b.register(n, 64, nil)
		b.Attention(dst, fill(64), fill(32), fill(32), kv, pos, s)
		return b.read(dst)
	}
	spec := backend.KVSpec{Heads: 1, HeadDim: 32, Context: 64, Type: "f32"}
	first, _ := b.KV(spec)
	run(first, 0, 40, 1)
	got := run(first, 20, 10, 2)
	second, _ := b.KV(spec)
	run(second, 0, 20, 1)
	if want := run(second, 20, 10, 2); !b.same(got, want) {
		t.Error("attention after a step back differs from the same steps on a new cache")
	}
}

func (c Config) elementwise(t *testing.T) {
	b := c.bench(t)
	for _, s := range []struct{ rows, cols int }{{1, 1}, {3, 37}, {64, 1536}} {
		n := s.rows * s.cols
		gs, us := b.normal(n, 4), b.normal(n, 2)
		gs[0] = -100
		gate, up, dst := b.register(s.rows, s.cols, gs), b.register(s.rows, s.cols, us), b.register(s.rows, s.cols, nil)
		b.SwiGLU(dst, gate, up)
		got := b.read(dst)
		for i, y := range got {
			want := silu(float64(gs[i])) * float64(us[i])
			b.near(y, want, ulps(8, want), "swiglu %+v at %d", s, i)
		}
		b.SwiGLU(gate, gate, up)
		if !slices.Equal(got, b.read(gate)) {
			t.Errorf("%+v: swiglu in place gives other bits", s)
		}
		b.Add(up, dst)
		for i, y := range b.read(up) {
			if want := us[i] + got[i]; y != want {
				t.Fatalf("add %+v at %d: got %v, want %v", s, i, y, want)
			}
		}
		from := s.rows / 2
		part := b.register(s.rows-from, s.cols, nil)
		b.Take(part, dst, from)
		if !slices.Equal(b.read(part), got[from*s.cols:]) {
			t.Errorf("%+v: take from %d", s, from)
		}
	}
}

func (c Config) route(t *testing.T) {
	b := c.bench(t)
	const hidden, tokens = 64, 23
	for _, f := range []plane.Format{{Bits: 16}, {Bits: 32}, {Bits: 8, Group: 64}} {
		for _, s := range []struct{ experts, k int }{{5, 5}, {64, 8}, {300, 1}} {
			for _, norm := range []bool{false, true} {
				m := b.matrix(s.experts, hidden, f)
				bias := b.normal(s.experts, 1)
				values := b.normal(tokens*hidden, 1)
				ids, weights := make([]int32, tokens*s.k), make([]float32, tokens*s.k)
				err := b.Route(ids, weights, b.register(tokens, hidden, values), b.linear(bias, m), backend.RouteSpec{TopK: s.k, Norm: norm})
				if err != nil {
					t.Fatal(err)
				}
				for row := range tokens {
					b.checkRoute(fmt.Sprintf("%+v, norm %v, row %d", s, norm, row), ids[row*s.k:][:s.k], weights[row*s.k:][:s.k], values[row*hidden:][:hidden], bias, m, norm)
				}
			}
		}
	}
	// Equal logits: the lower index, in order.
	m := b.matrix(4, hidden, plane.Format{Bits: 32})
	clear(m.data)
	ids, weights := make([]int32, 3), make([]float32, 3)
	if err := b.Route(ids, weights, b.register(1, hidden, b.normal(hidden, 1)), b.linear([]float32{0, 2, 2, 2}, m), backend.RouteSpec{TopK: 3}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, []int32{1, 2, 3}) {
		t.Errorf("ties: got %v, want 1, 2, 3", ids)
	}
}

func (b *bench) checkRoute(what string, ids []int32, weights, x, bias []float32, m *matrix, norm bool) {
	b.Helper()
	logits, bounds := make([]float64, m.Rows), make([]float64, m.Rows)
	var total, chosen, widest float64
	for e := range logits {
		logits[e], bounds[e] = b.product(x, e, bias, m)
		total += math.Exp(logits[e])
		widest = max(widest, bounds[e])
	}
	taken := make(map[int32]bool)
	for i, id := range ids {
		if id < 0 || int(id) >= m.Rows || taken[id] {
			b.Fatalf("%s: chose %v", what, ids)
		}
		taken[id] = true
		chosen += math.Exp(logits[id])
		if i > 0 && logits[id] > logits[ids[i-1]]+2*widest {
			b.Fatalf("%s: %v is not in descending order", what, ids)
		}
	}
	last := logits[ids[len(ids)-1]]
	for e, l := range logits {
		if !taken[int32(e)] && l > last+2*widest {
			b.Fatalf("%s: expert %d with logit %v is missing in %v, whose last has %v", what, e, l, ids, last)
		}
	}
	if norm {
		total = chosen
	}
	for i, id := range ids {
		want := math.Exp(logits[id]) / total
		b.near(weights[i], want, want*(2*widest+1e-6), "%s: weight %d", what, i)
	}
}

func (c Config) combine(t *testing.T) {
	b := c.bench(t)
	for _, s := range []struct{ rows, cols, k int }{{1, 5, 1}, {1, 576, 8}, {33, 70, 3}} {
		ds, ys, ws := b.normal(s.rows*s.cols, 1), b.normal(s.rows*s.k*s.cols, 1), b.normal(s.rows*s.k, 1)
		dst, y := b.register(s.rows, s.cols, ds), b.register(s.rows*s.k, s.cols, ys)
		b.Combine(dst, y, ws, s.k)
		for i, got := range b.read(dst) {
			want, bound := float64(ds[i]), abs(float64(ds[i]))
			for j := range s.k {
				p := float64(ws[i/s.cols*s.k+j]) * float64(ys[(i/s.cols*s.k+j)*s.cols+i%s.cols])
				want += p
				bound += abs(p)
			}
			b.near(got, want, bound*b.Rounding, "%+v at %d", s, i)
		}
	}
}

func (c Config) host(t *testing.T) {
	b := c.bench(t)
	values := b.normal(3*10, 1)
	r := b.register(5, 10, nil)
	b.Load(r.Head(3), values)
	if !slices.Equal(b.read(r.Head(3)), values) {
		t.Error("a register does not return what it was loaded with")
	}
}

func (c Config) overhead(t *testing.T) {
	b := c.bench(t)
	before := b.Overhead()
	b.register(100, 1000, nil)
	if got := b.Overhead() - before; got < 400_000 {
		t.Errorf("a register of 400000 bytes raised the overhead by %d", got)
	}
	before = b.Overhead()
	if _, err := b.KV(backend.KVSpec{Heads: 2, HeadDim: 8, Context: 1000, Type: "f16"}); err != nil {
		t.Fatal(err)
	}
	if got := b.Overhead() - before; got < 64_000 {
		t.Errorf("a cache of 64000 bytes raised the overhead by %d", got)
	}
}
