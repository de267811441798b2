package backendtest

import (
	"math"
	"strings"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// Each wrong call leaves an error with the op's name and touches nothing.
func (c Config) errors(t *testing.T) {
	b := c.bench(t)
	f := plane.Format{Bits: 4, Group: 64}
	x, y, wide := b.register(2, 64, b.normal(128, 1)), b.register(2, 32, b.normal(64, 1)), b.register(2, 65, nil)
	w := b.linear(nil, b.matrix(32, 64, f))
	square := b.linear(nil, b.matrix(64, 64, f))
	norm := b.vector(b.normal(64, 1))
	kv, err := b.KV(backend.KVSpec{Heads: 1, HeadDim: 32, Context: 4, Type: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	spec := backend.AttentionSpec{Heads: 1, KVHeads: 1, HeadDim: 32, Scale: 1}
	q, k, v, o := b.register(2, 32, nil), b.register(2, 32, nil), b.register(2, 32, nil), b.register(2, 32, nil)
	many := backend.Tensor{ID: x.ID, Rows: 3, Cols: 64}
	foreign := backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{{ID: 99, Rows: 32, Cols: 64}}}
	lying := backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{{ID: w.Parts[0].ID, Rows: 64, Cols: 64}}}
	mixed := backend.Linear{N: 2, Parts: [backend.MaxParts]backend.Matrix{w.Parts[0], square.Parts[0]}}
	expert := func(in, out int32) []backend.ExpertCall {
		return []backend.ExpertCall{{Gate: square, Up: square, Down: square, InRows: []int32{in}, OutRows: []int32{out}}}
	}
	dst := b.register(2, 64, nil)
	ids, weights := make([]int32, 4), make([]float32, 4)
	before := b.read(y)
	for _, c := range []struct {
		op   string
		call func()
	}{
		{"embed", func() { b.Embed(dst, []int32{0, 32}, w) }},
		{"embed", func() { b.Embed(dst, []int32{-1, 0}, w) }},
		{"embed", func() { b.Embed(dst, []int32{0}, w) }},
		{"embed", func() { b.Embed(y, []int32{0, 1}, w) }},
		{"rms_norm", func() { b.RMSNorm(wide, wide, norm, 1) }},
		{"rms_norm", func() { b.RMSNorm(y, x, norm, 1) }},
		{"rms_norm", func() { b.RMSNorm(x, x, backend.Vector{}, 1) }},
		{"rms_norm", func() { b.RMSNorm(x, x, backend.Vector{ID: norm.ID, Len: 32}, 1) }},
		{"linear", func() { b.Linear(y, wide, w) }},
		{"linear", func() { b.Linear(wide, x, w) }},
		{"linear", func() { b.Linear(y, x.Head(1), w) }},
		{"linear", func() { b.Linear(y, many, w) }},
		{"linear", func() { b.Linear(x, x, square) }},
		{"linear", func() { b.Linear(y, x, nil) }},
		{"linear", func() { b.Linear(y, x, &backend.Linear{}) }},
		{"linear", func() { b.Linear(y, x, &foreign) }},
		{"linear", func() { b.Linear(dst, x, &lying) }},
		{"linear", func() { b.Linear(y, x, &mixed) }},
		{"linear", func() { b.Linear(y, x, &backend.Linear{N: 1, Parts: w.Parts, Bias: norm}) }},
		{"linear", func() { b.Linear(y, x, &backend.Linear{N: 4, Parts: w.Parts}) }},
		{"linear", func() { b.Linear(backend.Tensor{}, x, w) }},
		{"linears", func() { b.Linears([]backend.Tensor{y}, x, nil) }},
		{"linears", func() { b.Linears([]backend.Tensor{y, y}, x, []*backend.Linear{w, w}) }},
		{"rope", func() { b.RoPE(x, 48, 0, make([]float32, 24)) }},
		{"rope", func() { b.RoPE(x, 32, 0, make([]float32, 15)) }},
		{"rope", func() { b.RoPE(x, 32, -1, make([]float32, 16)) }},
		{"rope", func() { b.RoPE(wide, 65, 0, make([]float32, 32)) }},
		{"attention", func() { b.Attention(o, q, k, v, kv, 1, spec) }},
		{"attention", func() { b.Attention(o, q, k, v, backend.KV{}, 0, spec) }},
		{"attention", func() { b.Attention(q, q, k, v, kv, 0, spec) }},
		{"attention", func() { b.Attention(o, x, k, v, kv, 0, spec) }},
		{"attention", func() { b.Attention(o, q, k.Head(1), v, kv, 0, spec) }},
		{"attention", func() {
			b.Attention(o, q, k, v, kv, 0, backend.AttentionSpec{Heads: 2, KVHeads: 2, HeadDim: 16})
		}},
		{"attention", func() {
			b.Attention(o, q, k, v, kv, 0, spec)
			b.Attention(o, q, k, v, kv, 2, spec)
			b.Attention(o, q, k, v, kv, 4, spec)
		}},
		{"attention", func() {
			sinks := spec
			sinks.Sinks = b.vector(make([]float32, spec.Heads+1))
			b.Attention(o, q, k, v, kv, 0, sinks)
		}},
		{"attention", func() { b.Attention(o, q, k, backend.Tensor{}, kv, 0, spec) }},
		{"head_linear", func() { b.HeadLinear(dst, x, w, 3) }},
		{"head_linear", func() { b.HeadLinear(dst, x, square, 2) }},
		{"concat", func() { b.Concat(dst, x, y, 1) }},
		{"route", func() { _ = b.Route(ids, weights, x, w, backend.RouteSpec{TopK: 2, Groups: 3, TopGroups: 1}) }},
		{"route", func() { _ = b.Route(ids, weights, x, w, backend.RouteSpec{TopK: 2, Groups: 32, TopGroups: 1}) }},
		{"swiglu", func() { b.SwiGLU(x, x, y) }},
		{"swiglu", func() { b.SwiGLU(x, dst, x) }},
		{"add", func() { b.Add(x, y) }},
		{"take", func() { b.Take(dst, x, 1) }},
		{"take", func() { b.Take(dst, x, -1) }},
		{"route", func() { _ = b.Route(ids, weights, x, w, backend.RouteSpec{TopK: 33}) }},
		{"route", func() { _ = b.Route(ids, weights, x, w, backend.RouteSpec{}) }},
		{"route", func() { _ = b.Route(ids[:3], weights, x, w, backend.RouteSpec{TopK: 2}) }},
		{"experts", func() { b.Experts(dst, x, expert(2, 0)) }},
		{"experts", func() { b.Experts(dst, x, expert(0, -1)) }},
		{"experts", func() { b.Experts(dst, x, expert(0, 2)) }},
		{"experts", func() { b.Experts(x, x, expert(0, 0)) }},
		{"experts", func() { b.Experts(dst, x, append(expert(0, 1), expert(1, 1)...)) }},
		{"experts", func() { b.Experts(dst, x, []backend.ExpertCall{{Gate: w, Up: square, Down: square}}) }},
		{"experts", func() {
			b.Experts(dst, x, []backend.ExpertCall{{Gate: square, Up: square, Down: square, InRows: []int32{0}}})
		}},
		{"combine", func() { b.Combine(x.Head(1), dst, make([]float32, 3), 2) }},
		{"combine", func() { b.Combine(x, dst, make([]float32, 4), 2) }},
		{"logits", func() { _ = b.Logits(make([]float32, 64), x, 2) }},
		{"logits", func() { _ = b.Logits(make([]float32, 63), x, 0) }},
		{"load", func() { b.Load(x, make([]float32, 127)) }},
	} {
		c.call()
		b.Load(y, make([]float32, 64)) // does nothing
		if err := b.Logits(make([]float32, 64), x, 0); err == nil {
			t.Errorf("%s: Logits after a wrong call returned no error", c.op)
		}
		err := b.Sync()
		if err == nil || !strings.HasPrefix(err.Error(), c.op+":") {
			t.Errorf("a wrong %s: got error %v", c.op, err)
		}
		if err := b.Sync(); err != nil {
			t.Errorf("%s: the error is still there after Sync: %v", c.op, err)
		}
	}
	for i, v := range b.read(y) {
		if v != before[i] {
			t.Fatal("an op ran although an earlier one had failed")
		}
	}

	s := b.slabOf(1000)
	for _, spec := range []backend.MatrixSpec{
		{Rows: 0, Cols: 64, Format: f},
		{Rows: 4, Cols: 96, Format: f},
		{Rows: 4, Cols: 64, Format: plane.Format{Bits: 7, Group: 64}},
		{Rows: 4, Cols: 64, Format: plane.Format{Bits: 4, Group: 63}},
		{Rows: 4, Cols: 64, Format: f, Data: 896, Scales: 0, Biases: 0},
		{Rows: 4, Cols: 64, Format: f, Scales: 1024},
		{Rows: 4, Cols: 64, Format: f, Biases: -64},
		{Rows: 4, Cols: 64, Format: f, Biases: 32},
		{Rows: math.MaxInt, Cols: math.MaxInt, Format: f},
		{Rows: 4, Cols: 64, Format: f, Data: math.MaxInt64 - 63},
	} {
		if _, err := b.Matrix(s, spec); err == nil {
			t.Errorf("matrix %+v was accepted", spec)
		}
	}
	for _, n := range []int{0, -1, 251, math.MaxInt} {
		if _, err := b.Vector(s, 0, n); err == nil {
			t.Errorf("a vector of %d in a slab of 1000 bytes was accepted", n)
		}
	}
	for _, shape := range [][2]int{{0, 1}, {1, 0}, {-1, 1}, {math.MaxInt, 2}} {
		if _, err := b.Tensor(shape[0], shape[1]); err == nil {
			t.Errorf("a register of %v was accepted", shape)
		}
	}
	for _, spec := range []backend.KVSpec{
		{Heads: 1, HeadDim: 1, Context: 1, Type: "f64"},
		{Heads: 0, HeadDim: 1, Context: 1, Type: "f32"},
		{Heads: 1, HeadDim: 5000, Context: 1, Type: "f32"},
		{Heads: 1, HeadDim: 1, Context: math.MaxInt, Type: "f16"},
		{Heads: 1, HeadDim: 8, Context: 8, Type: "f32", Latent: 9},
		{Heads: 1, HeadDim: 8, Context: 8, Type: "f32", Latent: -1},
	} {
		if _, err := b.KV(spec); err == nil {
			t.Errorf("cache %+v was accepted", spec)
		}
	}
}

// Inputs that are no numbers end in outputs that are none, not in a hang, a
// crash or a route to an expert that does not exist.
func (c Config) notFinite(t *testing.T) {
	b := c.bench(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, bad := range []float32{inf, -inf, nan, math.MaxFloat32, math.SmallestNonzeroFloat32} {
		values := b.normal(2*64, 1)
		values[3], values[64+40] = bad, bad
		x, dst := b.register(2, 64, values), b.register(2, 64, nil)
		w := b.linear(nil, b.matrix(64, 64, plane.Format{Bits: 4, Group: 64}))
		dense := b.linear(nil, b.matrix(64, 64, plane.Format{Bits: 16}))
		b.Linear(dst, x, w)
		if out := b.read(dst); bad != bad && out[5] == out[5] {
			t.Errorf("a NaN input gave %v", out[5])
		}
		b.Linear(dst, x, dense)
		b.RMSNorm(dst, x, b.vector(b.normal(64, 1)), 1e-5)
		b.RoPE(dst, 16, 3, b.normal(8, 1))
		b.SwiGLU(dst, x, b.register(2, 64, values))
		b.Add(dst, x)
		kv, err := b.KV(backend.KVSpec{Heads: 2, HeadDim: 16, Context: 8, Type: "f16"})
		if err != nil {
			t.Fatal(err)
		}
		kvs := b.register(2, 32, values[:64])
		b.Attention(dst, x, kvs, b.register(2, 32, values[64:]), kv, 0, backend.AttentionSpec{Heads: 4, KVHeads: 2, HeadDim: 16, Scale: 1})
		b.Experts(dst, x, []backend.ExpertCall{{Gate: w, Up: w, Down: w, InRows: []int32{0, 1}, OutRows: []int32{1, 0}}})
		for _, w := range []*backend.Linear{w, dense} {
			ids, weights := make([]int32, 16), make([]float32, 16)
			if err := b.Route(ids, weights, x, w, backend.RouteSpec{TopK: 8, Norm: true}); err != nil {
				t.Fatal(err)
			}
			for row := range 2 {
				seen := make(map[int32]bool)
				for _, id := range ids[row*8:][:8] {
					if id < 0 || id >= 64 || seen[id] {
						t.Fatalf("input %v: routed to %v", bad, ids)
					}
					seen[id] = true
				}
			}
		}
		b.sync()
	}
}
