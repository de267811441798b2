//go:build cgo

package mlx

// #include "load.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"substrate/pkg/backend"
)

func rows(t backend.Tensor) C.sbmlx_rows {
	return C.sbmlx_rows{id: C.int32_t(t.ID), rows: C.int32_t(t.Rows)}
}

func linear(w *backend.Linear) C.sbmlx_linear {
	l := C.sbmlx_linear{parts: C.int32_t(w.N), bias: C.int32_t(w.Bias.ID)}
	for i := range w.N {
		l.part[i] = C.int32_t(w.Parts[i].ID)
	}
	return l
}

func floats(s []float32) *C.float { return (*C.float)(unsafe.SliceData(s)) }

func (b *Backend) Embed(dst backend.Tensor, ids []int32, table *backend.Linear) {
	if b.ok("embed", b.table.Embed(dst, ids, table)) {
		l := linear(table)
		b.done("embed", C.sb_mlx_embed(b.api, b.engine, rows(dst), (*C.int32_t)(unsafe.SliceData(ids)), &l))
	}
}

func (b *Backend) RMSNorm(dst, x backend.Tensor, w backend.Vector, eps float32) {
	if b.ok("rms_norm", b.table.RMSNorm(dst, x, w)) {
		b.done("rms_norm", C.sb_mlx_rms_norm(b.api, b.engine, rows(dst), rows(x), C.int32_t(w.ID), C.float(eps)))
	}
}

func (b *Backend) Linear(dst, x backend.Tensor, w *backend.Linear) {
	if b.ok("linear", b.table.Linear(dst, x, w)) {
		l := linear(w)
		b.done("linear", C.sb_mlx_linear(b.api, b.engine, rows(dst), rows(x), &l))
	}
}

func (b *Backend) Linears(dsts []backend.Tensor, x backend.Tensor, ws []*backend.Linear) {
	if !b.ok("linears", b.table.Linears(dsts, x, ws)) {
		return
	}
	for i, w := range ws {
		l := linear(w)
		b.done("linears", C.sb_mlx_linear(b.api, b.engine, rows(dsts[i]), rows(x), &l))
	}
}

// Lacks reports what the shim cannot do yet.
func (b *Backend) Lacks(f backend.Feature) bool {
	switch f {
	case backend.Sinks, backend.Latents, backend.ClampedGLU:
		return true
	}
	return false
}

// lacks fails because of a feature.
func (b *Backend) lacks(op string, f backend.Feature) {
	b.ok(op, fmt.Errorf("the mlx backend has no %s yet", f))
}

func (b *Backend) HeadLinear(dst, x backend.Tensor, w *backend.Linear, heads int) {
	if b.ok("head_linear", b.table.HeadLinear(dst, x, w, heads)) {
		b.lacks("head_linear", backend.Latents)
	}
}

func (b *Backend) Concat(dst, x, y backend.Tensor, heads int) {
	if b.ok("concat", b.table.Concat(dst, x, y, heads)) {
		b.lacks("concat", backend.Latents)
	}
}

// turn is a table of angles: of rows positions from pos on.
type turn struct {
	pos, rows int
	freqs     []float32
	cos, sin  []float32
}

func (b *Backend) RoPE(x backend.Tensor, headDim, pos int, freqs []float32) {
	if !b.ok("rope", b.table.RoPE(x, headDim, pos, freqs)) {
		return
	}
	// Every layer of a step turns queries and keys by the same angles.
	if t := &b.turn; t.pos != pos || t.rows != x.Rows || !slices.Equal(t.freqs, freqs) {
		t.fill(pos, x.Rows, freqs)
		b.done("rope", C.sb_mlx_angles(b.api, b.engine, floats(t.cos), floats(t.sin), C.int32_t(x.Rows), C.int32_t(headDim/2)))
	}
	if b.err == nil {
		b.done("rope", C.sb_mlx_rope(b.api, b.engine, rows(x)))
	}
}

// fill computes the angles in float32, as the models were trained with, and
// their sines and cosines rounded once.
func (t *turn) fill(pos, rows int, freqs []float32) {
	t.pos, t.rows, t.freqs = pos, rows, append(t.freqs[:0], freqs...)
	t.cos, t.sin = t.cos[:0], t.sin[:0]
	for r := range rows {
		for _, f := range freqs {
			sin, cos := math.Sincos(float64(float32(pos+r) * f))
			t.cos, t.sin = append(t.cos, float32(cos)), append(t.sin, float32(sin))
		}
	}
}

func (b *Backend) Attention(dst, q, k, v backend.Tensor, cache backend.KV, pos int, s backend.AttentionSpec) {
	if !b.ok("attention", b.table.Attention(dst, q, k, v, cache, pos, s)) {
		return
	}
	if s.Sinks != (backend.Vector{}) {
		b.lacks("attention", backend.Sinks)
		return
	}
	spec := C.sbmlx_attention{
		heads: C.int32_t(s.Heads), kv_heads: C.int32_t(s.KVHeads), head_dim: C.int32_t(s.HeadDim),
		pos: C.int32_t(pos), window: C.int32_t(min(s.Window, math.MaxInt32)), scale: C.float(s.Scale),
	}
	b.done("attention", C.sb_mlx_attention(b.api, b.engine, rows(dst), rows(q), rows(k), rows(v), C.int32_t(cache.ID), &spec))
}

func (b *Backend) SwiGLU(dst, gate, up backend.Tensor) {
	if b.ok("swiglu", b.table.SwiGLU(dst, gate, up)) {
		b.done("swiglu", C.sb_mlx_swiglu(b.api, b.engine, rows(dst), rows(gate), rows(up)))
	}
}

func (b *Backend) Add(dst, x backend.Tensor) {
	if b.ok("add", b.table.Add(dst, x)) {
		b.done("add", C.sb_mlx_add(b.api, b.engine, rows(dst), rows(x)))
	}
}

func (b *Backend) Take(dst, x backend.Tensor, from int) {
	if b.ok("take", b.table.Take(dst, x, from)) {
		b.done("take", C.sb_mlx_take(b.api, b.engine, rows(dst), rows(x), C.int32_t(from)))
	}
}

// Route computes logits on the device and chooses on the host, by the rule of
// all backends.
func (b *Backend) Route(ids []int32, weights []float32, x backend.Tensor, w *backend.Linear, s backend.RouteSpec) error {
	if !b.ok("route", b.table.Route(ids, weights, x, w, s)) {
		return b.err
	}
	experts := w.Parts[0].Rows
	if n := x.Rows * experts; n > len(b.logits) {
		b.logits = make([]float32, n)
	}
	l := linear(w)
	if b.done("route", C.sb_mlx_project(b.api, b.engine, floats(b.logits), rows(x), &l)); b.err != nil {
		return b.err
	}
	for r := range x.Rows {
		backend.Choose(ids[r*s.TopK:][:s.TopK], weights[r*s.TopK:][:s.TopK], b.logits[r*experts:][:experts], s)
	}
	return nil
}

func (b *Backend) Experts(out, x backend.Tensor, calls []backend.ExpertCall) {
	if !b.ok("experts", b.table.Experts(out, x, calls)) || len(calls) == 0 {
		return
	}
	b.experts, b.rows = b.experts[:0], b.rows[:0]
	for i := range calls {
		c := &calls[i]
		if c.Act.Limit > 0 {
			b.lacks("experts", backend.ClampedGLU)
			return
		}
		b.experts = append(b.experts, C.sbmlx_expert{gate: linear(c.Gate), up: linear(c.Up), down: linear(c.Down), rows: C.int32_t(len(c.InRows))})
		for _, row := range c.InRows {
			b.rows = append(b.rows, C.int32_t(row))
		}
		for _, row := range c.OutRows {
			b.rows = append(b.rows, C.int32_t(row))
		}
	}
	b.done("experts", C.sb_mlx_experts(b.api, b.engine, rows(out), rows(x), unsafe.SliceData(b.experts), C.int32_t(len(calls)), unsafe.SliceData(b.rows)))
}

func (b *Backend) Combine(dst, y backend.Tensor, weights []float32, k int) {
	if b.ok("combine", b.table.Combine(dst, y, weights, k)) {
		b.done("combine", C.sb_mlx_combine(b.api, b.engine, rows(dst), rows(y), floats(weights), C.int32_t(k)))
	}
}

func (b *Backend) Load(dst backend.Tensor, values []float32) {
	if b.ok("load", b.table.Load(dst, values)) {
		b.done("load", C.sb_mlx_put(b.api, b.engine, rows(dst), floats(values)))
	}
}

func (b *Backend) Logits(dst []float32, x backend.Tensor, row int) error {
	if b.ok("logits", b.table.Logits(dst, x, row)) {
		b.done("logits", C.sb_mlx_read(b.api, b.engine, floats(dst), rows(x), C.int32_t(row)))
	}
	return b.err
}
