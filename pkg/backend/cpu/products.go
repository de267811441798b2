//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"substrate/pkg/backend"
)

// linear describes w to C and notes which roundings of the input it wants.
func (b *Backend) linear(w *backend.Linear) C.sb_linear {
	c := C.sb_linear{parts: C.int32_t(w.N)}
	for i := range w.N {
		m := b.matrices[w.Parts[i].ID-1]
		c.part[i] = m
		if m.bits < 16 && b.options.Activations == Int8 {
			if m.group == 32 {
				b.fixed.input.need[1] = 1
			} else {
				b.fixed.input.need[0] = 1
			}
		}
	}
	if w.Bias.ID != 0 {
		c.bias = b.vector(w.Bias)
	}
	return c
}

// input describes rows of x to C.
func (b *Backend) input(x *C.float, rows, cols int) {
	in := &b.fixed.input
	in.x, in.stride, in.rows, in.cols = x, C.int64_t(cols), C.int32_t(rows), C.int32_t(cols)
	in.need = [2]C.int32_t{}
	in.gather = nil
}

// run computes the first n tasks.
func (b *Backend) run(n int) {
	// For the address of an element in the call itself, cgo would copy the
	// whole array to the heap to check it for pointers.
	first := &b.fixed.tasks[0]
	C.sb_products(&b.fixed.context, &b.fixed.input, first, C.int(n))
}

// offset is the address of a float of an array.
func offset(p *C.float, floats int) *C.float {
	return (*C.float)(unsafe.Add(unsafe.Pointer(p), 4*floats))
}

// products sets every ys[i], [rows][outputs], to ws[i](x).
func (b *Backend) products(ys []*C.float, x *C.float, rows int, ws []*backend.Linear) {
	f, cols := b.fixed, ws[0].Parts[0].Cols
	for from := 0; from < rows; from += backend.ScratchTokens {
		n := min(rows-from, backend.ScratchTokens)
		for first := 0; first < len(ws); first += tasks {
			some := ws[first:min(first+tasks, len(ws))]
			b.input(offset(x, from*cols), n, cols)
			for i, w := range some {
				outputs := w.Parts[0].Rows
				f.tasks[i] = C.sb_task{
					w: b.linear(w), tokens: C.int32_t(n),
					y: offset(ys[first+i], from*outputs), y_stride: C.int64_t(outputs),
				}
			}
			b.run(len(some))
		}
	}
}

func (b *Backend) Linear(dst, x backend.Tensor, w *backend.Linear) {
	if b.ok("linear", b.table.Linear(dst, x, w)) {
		ys, ws := [1]*C.float{b.tensor(dst)}, [1]*backend.Linear{w}
		b.products(ys[:], b.tensor(x), x.Rows, ws[:])
	}
}

// HeadLinear gives C a matrix for each head, a stretch of rows of the whole.
func (b *Backend) HeadLinear(dst, x backend.Tensor, w *backend.Linear, heads int) {
	if !b.ok("head_linear", b.table.HeadLinear(dst, x, w, heads)) {
		return
	}
	f, inputs, outputs := b.fixed, x.Cols/heads, dst.Cols/heads
	for from := 0; from < x.Rows; from += backend.ScratchTokens {
		n := min(x.Rows-from, backend.ScratchTokens)
		for h := range heads {
			b.input(offset(b.tensor(x), from*x.Cols+h*inputs), n, inputs)
			f.input.stride = C.int64_t(x.Cols)
			f.tasks[0] = C.sb_task{
				w: b.linear(w), tokens: C.int32_t(n),
				y: offset(b.tensor(dst), from*dst.Cols+h*outputs), y_stride: C.int64_t(dst.Cols),
			}
			for i := range w.N {
				f.heads[i] = *b.matrices[w.Parts[i].ID-1]
				cut(&f.heads[i], h*outputs, outputs)
				f.tasks[0].w.part[i] = &f.heads[i]
			}
			b.run(1)
		}
	}
}

// cut leaves n rows of a matrix, those from first on.
func cut(m *C.sb_matrix, first, n int) {
	m.data = (*C.uint8_t)(unsafe.Add(unsafe.Pointer(m.data), first*int(m.cols)*int(m.bits)/8))
	if m.group > 0 {
		groups := first * int(m.cols) / int(m.group)
		m.scales = (*C.uint16_t)(unsafe.Add(unsafe.Pointer(m.scales), 2*groups))
		m.biases = (*C.uint16_t)(unsafe.Add(unsafe.Pointer(m.biases), 2*groups))
	}
	m.rows = C.int32_t(n)
}

func (b *Backend) Linears(dsts []backend.Tensor, x backend.Tensor, ws []*backend.Linear) {
	if !b.ok("linears", b.table.Linears(dsts, x, ws)) || len(ws) == 0 {
		return
	}
	var ys [tasks]*C.float
	for first := 0; first < len(ws); first += tasks {
		some := dsts[first:min(first+tasks, len(ws))]
		for i, dst := range some {
			ys[i] = b.tensor(dst)
		}
		b.products(ys[:len(some)], b.tensor(x), x.Rows, ws[first:][:len(some)])
	}
}

func (b *Backend) Embed(dst backend.Tensor, ids []int32, table *backend.Linear) {
	if !b.ok("embed", b.table.Embed(dst, ids, table)) {
		return
	}
	w := &b.fixed.tasks[0].w
	*w = b.linear(table)
	C.sb_embed(&b.fixed.context, b.tensor(dst), (*C.float)(b.at(b.layout.Row)), w, (*C.int32_t)(unsafe.SliceData(ids)), C.int(len(ids)))
}

func (b *Backend) Route(ids []int32, weights []float32, x backend.Tensor, w *backend.Linear, s backend.RouteSpec) error {
	if !b.ok("route", b.table.Route(ids, weights, x, w, s)) {
		return b.err
	}
	experts := w.Parts[0].Rows
	portion := max(1, backend.ScratchLogits/4/experts)
	logits := (*C.float)(b.at(b.layout.Logits))
	ys, ws := [1]*C.float{logits}, [1]*backend.Linear{w}
	for from := 0; from < x.Rows; from += portion {
		n := min(portion, x.Rows-from)
		b.products(ys[:], offset(b.tensor(x), from*x.Cols), n, ws[:])
		all := unsafe.Slice((*float32)(unsafe.Pointer(logits)), n*experts)
		for r := range n {
			at := (from + r) * s.TopK
			backend.Choose(ids[at:at+s.TopK], weights[at:at+s.TopK], all[r*experts:][:experts], s)
		}
	}
	return nil
}

// Experts runs passes of up to ScratchExpertRows rows: first every gate and up
// of a pass into the intermediates, then every down.
func (b *Backend) Experts(out, x backend.Tensor, calls []backend.ExpertCall) {
	if !b.ok("experts", b.table.Experts(out, x, calls)) {
		return
	}
	call, row := 0, 0 // the next row to compute
	for {
		for call < len(calls) && row == len(calls[call].InRows) {
			call, row = call+1, 0
		}
		if call == len(calls) {
			return
		}
		call, row = b.expertPass(out, x, calls, call, row)
	}
}

// span is the part of a call that a pass computes.
type span struct{ call, row, n int }

// expertPass computes as much as fits from a call's row on, and returns where
// the next pass begins.
func (b *Backend) expertPass(out, x backend.Tensor, calls []backend.ExpertCall, call, row int) (int, int) {
	f, inner := b.fixed, calls[call].Gate.Parts[0].Rows
	var spans [tasks]span
	n, used := 0, 0
	for n < tasks && used < len(f.in) && call < len(calls) {
		c := &calls[call]
		if c.Gate.Parts[0].Rows != inner {
			break // one stride of intermediates per pass
		}
		take := min(len(c.InRows)-row, len(f.in)-used)
		for i := range take {
			f.in[used+i], f.out[used+i] = C.int32_t(c.InRows[row+i]), C.int32_t(c.OutRows[row+i])
		}
		if take > 0 {
			spans[n] = span{call, row, take}
			n, used, row = n+1, used+take, row+take
		}
		if row < len(c.InRows) {
			break // full
		}
		call, row = call+1, 0
	}

	// Round each row of x once, or, if the pass needs only few of many, each
	// row where it is used.
	b.input(b.tensor(x), x.Rows, x.Cols)
	gathered := x.Rows > used
	if gathered {
		f.input.rows, f.input.gather = C.int32_t(used), &f.in[0]
	}
	h := (*C.float)(b.at(b.layout.Inner))
	at := 0
	for i, s := range spans[:n] {
		t := C.sb_task{
			w: b.linear(calls[s.call].Gate), up: b.linear(calls[s.call].Up), tokens: C.int32_t(s.n),
			y: offset(h, at*inner), y_stride: C.int64_t(inner), in: &f.in[at], rounded: &f.in[at],
			alpha: C.float(calls[s.call].Act.Alpha), limit: C.float(calls[s.call].Act.Limit),
		}
		if gathered {
			t.rounded = &f.order[at]
		}
		f.tasks[i] = t
		at += s.n
	}
	b.run(n)

	b.input(h, used, inner)
	at = 0
	for i, s := range spans[:n] {
		f.tasks[i] = C.sb_task{
			w: b.linear(calls[s.call].Down), tokens: C.int32_t(s.n),
			y: b.tensor(out), y_stride: C.int64_t(out.Cols), in: &f.order[at], rounded: &f.order[at], out: &f.out[at],
		}
		at += s.n
	}
	b.run(n)
	return call, row
}
