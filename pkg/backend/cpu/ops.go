//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"substrate/pkg/backend"
	"substrate/pkg/backend/internal/contract"
)

func (b *Backend) tensor(t backend.Tensor) *C.float { return (*C.float)(b.tensors[t.ID-1]) }

// values is a register's memory as a slice.
func (b *Backend) values(t backend.Tensor) []float32 {
	return unsafe.Slice((*float32)(b.tensors[t.ID-1]), t.Rows*t.Cols)
}

func (b *Backend) vector(v backend.Vector) *C.float { return (*C.float)(b.vectors[v.ID-1]) }

func (b *Backend) RMSNorm(dst, x backend.Tensor, w backend.Vector, eps float32) {
	if b.ok("rms_norm", b.table.RMSNorm(dst, x, w)) {
		C.sb_rms_norm(&b.fixed.context, b.tensor(dst), b.tensor(x), b.vector(w), C.int(w.Len), C.int64_t(x.Rows*x.Cols/w.Len), C.float(eps))
	}
}

func (b *Backend) RoPE(x backend.Tensor, headDim, pos int, freqs []float32) {
	if b.ok("rope", b.table.RoPE(x, headDim, pos, freqs)) {
		C.sb_rope(&b.fixed.context, b.tensor(x), C.int(x.Rows), C.int(x.Cols), C.int(headDim), C.int(pos), (*C.float)(unsafe.SliceData(freqs)))
	}
}

func (b *Backend) Attention(dst, q, k, v backend.Tensor, kv backend.KV, pos int, s backend.AttentionSpec) {
	if !b.ok("attention", b.table.Attention(dst, q, k, v, kv, pos, s)) {
		return
	}
	b.fixed.attention = C.sb_attention{
		y: b.tensor(dst), q: b.tensor(q), kv: b.caches[kv.ID-1], scale: C.float(s.Scale),
		rows: C.int32_t(q.Rows), heads: C.int32_t(s.Heads), pos: C.int32_t(pos), window: C.int32_t(s.Window),
	}
	if s.Sinks.ID != 0 {
		b.fixed.attention.sinks = b.vector(s.Sinks)
	}
	var values *C.float // none in a latent cache
	if v.ID != 0 {
		values = b.tensor(v)
	}
	C.sb_attend(&b.fixed.context, &b.fixed.attention, b.tensor(k), values)
}

func (b *Backend) Concat(dst, x, y backend.Tensor, heads int) {
	if b.ok("concat", b.table.Concat(dst, x, y, heads)) {
		contract.Concat(b.values(dst), b.values(x), b.values(y), x.Rows*heads)
	}
}

func (b *Backend) SwiGLU(dst, gate, up backend.Tensor) {
	if b.ok("swiglu", b.table.SwiGLU(dst, gate, up)) {
		C.sb_swiglu(&b.fixed.context, b.tensor(dst), b.tensor(gate), b.tensor(up), C.int64_t(gate.Rows*gate.Cols))
	}
}

func (b *Backend) Add(dst, x backend.Tensor) {
	if b.ok("add", b.table.Add(dst, x)) {
		C.sb_add(&b.fixed.context, b.tensor(dst), b.tensor(x), C.int64_t(x.Rows*x.Cols))
	}
}

func (b *Backend) Take(dst, x backend.Tensor, from int) {
	if b.ok("take", b.table.Take(dst, x, from)) {
		copy(b.values(dst), b.values(x)[from*x.Cols:])
	}
}

func (b *Backend) Combine(dst, y backend.Tensor, weights []float32, k int) {
	if b.ok("combine", b.table.Combine(dst, y, weights, k)) {
		C.sb_combine(&b.fixed.context, b.tensor(dst), b.tensor(y), (*C.float)(unsafe.SliceData(weights)), C.int(dst.Rows), C.int(dst.Cols), C.int(k))
	}
}

func (b *Backend) Logits(dst []float32, x backend.Tensor, row int) error {
	if b.ok("logits", b.table.Logits(dst, x, row)) {
		copy(dst, b.values(x)[row*x.Cols:])
	}
	return b.err
}

func (b *Backend) Load(dst backend.Tensor, values []float32) {
	if b.ok("load", b.table.Load(dst, values)) {
		copy(b.values(dst), values)
	}
}
