//go:build cgo

package cpu

// #cgo CFLAGS: -std=c11 -O3 -Wall -Wextra
// #cgo linux LDFLAGS: -lm -lpthread
// #cgo nocallback sb_products
// #cgo noescape sb_products
// #cgo nocallback sb_embed
// #cgo noescape sb_embed
// #cgo nocallback sb_rms_norm
// #cgo noescape sb_rms_norm
// #cgo nocallback sb_rope
// #cgo noescape sb_rope
// #cgo nocallback sb_attend
// #cgo noescape sb_attend
// #cgo nocallback sb_swiglu
// #cgo noescape sb_swiglu
// #cgo nocallback sb_add
// #cgo noescape sb_add
// #cgo nocallback sb_combine
// #cgo noescape sb_combine
// #include <stdlib.h>
// #include "cpu.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/backend/internal/contract"
	"substrate/pkg/plane"
)

// Built reports whether this program has the kernels.
const Built = true

// Backend implements backend.Backend.
type Backend struct {
	table   contract.Table
	options Options
	kernels *C.sb_kernels
	pool    *C.sb_pool
	threads []byte // per-thread scratch, mapped
	err     error

	// Handle n is entry n-1. What the entries point to is outside the Go
	// heap: C keeps pointers to it between calls.
	tensors  []unsafe.Pointer // float32
	matrices []*C.sb_matrix
	vectors  []unsafe.Pointer // float32
	caches   []*C.sb_kv

	maps [][]byte // registers, caches, descriptors: freed by Close
	free []byte   // rest of the newest map of descriptors
	held int64

	spec    backend.ScratchSpec
	layout  backend.ScratchLayout
	scratch []byte
	fixed   *fixed // in scratch
}

// fixed is what an op hands to C, in memory outside the Go heap.
type fixed struct {
	context   C.sb_context
	input     C.sb_input
	tasks     [tasks]C.sb_task
	attention C.sb_attention
	in, out   [backend.ScratchExpertRows]C.int32_t
	heads     [backend.MaxParts]C.sb_matrix        // of HeadLinear
	order     [backend.ScratchExpertRows]C.int32_t // 0, 1, 2, ...
	freqs     [C.SB_HEAD_DIM / 2]C.float
}

// tasks is how many products one call of C takes.
const tasks = 64

// The layout of scratch is computed without C, so that planning can. These
// fail to compile unless the sizes it assumes are those of the structures.
const (
	_ = uint(backend.ScratchTokens - C.SB_TOKENS)
	_ = uint(C.SB_TOKENS - backend.ScratchTokens)
	_ = uint(backend.ScratchThread - unsafe.Sizeof(C.sb_scratch{}))
	_ = uint(unsafe.Sizeof(C.sb_scratch{}) - backend.ScratchThread)
	_ = uint(backend.ScratchFixed - unsafe.Sizeof(fixed{}))
)

var _ backend.Backend = (*Backend)(nil)

// Open starts the threads.
func Open(o Options) (backend.Backend, error) {
	if err := o.fill(runtime.GOMAXPROCS(0)); err != nil {
		return nil, err
	}
	path := C.CString(o.ForcePath)
	defer C.free(unsafe.Pointer(path))
	b := &Backend{options: o, kernels: C.sb_find(path)}
	if b.kernels == nil {
		return nil, fmt.Errorf("backend cpu: this machine has no path %q", o.ForcePath)
	}
	var err error
	if b.threads, err = mem.Map(int64(o.Threads) * int64(unsafe.Sizeof(C.sb_scratch{}))); err != nil {
		return nil, fmt.Errorf("backend cpu: %w", err)
	}
	if b.pool = C.sb_pool_open(C.int(o.Threads), (*C.sb_scratch)(pointer(b.threads))); b.pool == nil {
		return nil, errors.Join(fmt.Errorf("backend cpu: cannot start %d threads", o.Threads), mem.Unmap(b.threads))
	}
	if err := b.reserve(backend.ScratchSpec{Threads: o.Threads}); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Backend) Name() string { return "cpu" }
func (b *Backend) Path() string { return C.GoString(b.kernels.name) }

func pointer(m []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m)) }

// reserve makes scratch fit what was asked for so far and spec.
func (b *Backend) reserve(spec backend.ScratchSpec) error {
	spec.Rows = max(spec.Rows, b.spec.Rows)
	spec.Cols = max(spec.Cols, b.spec.Cols)
	spec.HeadDim = max(spec.HeadDim, b.spec.HeadDim)
	spec.Threads = b.options.Threads
	if spec == b.spec {
		return nil
	}
	layout := backend.Scratch(spec)
	if b.scratch == nil || layout.Bytes != b.layout.Bytes {
		m, err := mem.Map(layout.Threads) // the threads' own lies apart
		if err != nil {
			return fmt.Errorf("backend cpu: scratch: %w", err)
		}
		if err := mem.Unmap(b.scratch); err != nil {
			return err
		}
		b.scratch = m
	}
	b.spec, b.layout = spec, layout
	f := (*fixed)(b.at(layout.Fixed))
	*f = fixed{}
	for i := range f.order {
		f.order[i] = C.int32_t(i)
	}
	f.context = C.sb_context{
		kernels: b.kernels, pool: b.pool, threads: C.int32_t(b.options.Threads),
		cos: (*C.float)(b.at(layout.Cos)), sin: (*C.float)(b.at(layout.Sin)),
		freqs: &f.freqs[0], angle_floats: C.int32_t(layout.AngleFloats),
	}
	for i := range f.input.int8 {
		f.input.int8[i] = C.sb_int8{
			q: (*C.int8_t)(b.at(layout.Codes[i])), q_stride: C.int64_t(layout.CodeStride),
			scale: (*C.float)(b.at(layout.Scales[i])), sum: (*C.float)(b.at(layout.Sums[i])), s_stride: C.int64_t(layout.ScaleStride[i]),
		}
	}
	b.fixed = f
	return nil
}

// at is an address in scratch.
func (b *Backend) at(offset int64) unsafe.Pointer { return unsafe.Add(pointer(b.scratch), offset) }

// hold allocates memory that lives until Close.
func (b *Backend) hold(bytes int64) (unsafe.Pointer, error) {
	m, err := mem.Map(bytes)
	if err != nil {
		return nil, err
	}
	b.maps = append(b.maps, m)
	b.held += bytes
	return pointer(m), nil
}

// describe allocates one of many small structures that live until Close.
func describe[T any](b *Backend) (*T, error) {
	const chunk = 64 << 10
	size := (int(unsafe.Sizeof(*new(T))) + 7) &^ 7
	if len(b.free) < size {
		p, err := b.hold(chunk)
		if err != nil {
			return nil, err
		}
		b.free = unsafe.Slice((*byte)(p), chunk)
	}
	p := (*T)(pointer(b.free))
	b.free = b.free[size:]
	return p, nil
}

func (b *Backend) Overhead() int64 {
	return b.held + b.layout.Bytes + backend.ScratchStack*int64(b.options.Threads-1)
}

type slab struct{ mem []byte }

func (s *slab) Bytes() []byte { return s.mem }

func (s *slab) Free() {
	// The mapping is ours, so unmapping it cannot fail.
	_ = mem.Unmap(s.mem)
	s.mem = nil
}

func (b *Backend) Alloc(bytes int64) (backend.Slab, error) {
	m, err := mem.Map(bytes)
	if err != nil {
		return nil, fmt.Errorf("slab: %w", err)
	}
	return &slab{m}, nil
}

func memory(s backend.Slab) ([]byte, error) {
	own, ok := s.(*slab)
	if !ok || own.mem == nil {
		return nil, errors.New("slab is freed or not of this backend")
	}
	return own.mem, nil
}

func (b *Backend) Matrix(s backend.Slab, spec backend.MatrixSpec) (backend.Matrix, error) {
	data, err := memory(s)
	if err != nil {
		return backend.Matrix{}, err
	}
	handle, m, err := b.table.AddMatrix(data, spec)
	if err != nil {
		return backend.Matrix{}, err
	}
	if err := b.reserve(backend.ScratchSpec{Cols: m.Cols}); err != nil {
		return backend.Matrix{}, err
	}
	c, err := describe[C.sb_matrix](b)
	if err != nil {
		return backend.Matrix{}, err
	}
	*c = C.sb_matrix{
		data: (*C.uint8_t)(pointer(m.Data)),
		rows: C.int32_t(m.Rows), cols: C.int32_t(m.Cols),
		bits: C.int16_t(m.Format.Bits), group: C.int16_t(m.Format.Group),
	}
	if m.Format.Coded() {
		c.scales, c.biases = (*C.uint16_t)(pointer(m.Scales)), (*C.uint16_t)(pointer(m.Biases))
	}
	if m.Format.Scale == plane.F16 {
		c.f16 = 1
	}
	b.matrices = append(b.matrices, c)
	return handle, nil
}

func (b *Backend) Vector(s backend.Slab, offset int64, n int) (backend.Vector, error) {
	data, err := memory(s)
	if err != nil {
		return backend.Vector{}, err
	}
	handle, bytes, err := b.table.AddVector(data, offset, n)
	if err != nil {
		return backend.Vector{}, err
	}
	b.vectors = append(b.vectors, pointer(bytes))
	return handle, nil
}

func (b *Backend) Tensor(rows, cols int) (backend.Tensor, error) {
	handle, err := b.table.AddTensor(rows, cols)
	if err != nil {
		return backend.Tensor{}, err
	}
	p, err := b.hold(4 * int64(rows) * int64(cols))
	if err == nil {
		err = b.reserve(backend.ScratchSpec{Rows: rows})
	}
	if err != nil {
		return backend.Tensor{}, fmt.Errorf("register [%d, %d]: %w", rows, cols, err)
	}
	b.tensors = append(b.tensors, p)
	return handle, nil
}

func (b *Backend) KV(spec backend.KVSpec) (backend.KV, error) {
	handle, err := b.table.AddKV(spec)
	if err != nil {
		return backend.KV{}, err
	}
	size := int64(spec.Heads) * int64(spec.Context) * int64(spec.HeadDim) * backend.KVWidth(spec.Type)
	planes, value := int64(2), spec.HeadDim
	if spec.Latent > 0 {
		planes, value = 1, spec.Latent
	}
	p, err := b.hold(planes * size)
	if err == nil {
		err = b.reserve(backend.ScratchSpec{HeadDim: spec.HeadDim})
	}
	if err != nil {
		return backend.KV{}, fmt.Errorf("KV cache: %w", err)
	}
	c, err := describe[C.sb_kv](b)
	if err != nil {
		return backend.KV{}, fmt.Errorf("KV cache: %w", err)
	}
	*c = C.sb_kv{
		k: p, v: unsafe.Add(p, (planes-1)*size), context: C.int32_t(spec.Context),
		kv_heads: C.int32_t(spec.Heads), head_dim: C.int32_t(spec.HeadDim), value_dim: C.int32_t(value),
	}
	if spec.Type == "f16" {
		c.f16 = 1
	}
	b.caches = append(b.caches, c)
	return handle, nil
}

// ok reports whether an op may run: nothing failed before it and its own
// arguments are right. The first failure sticks.
func (b *Backend) ok(op string, err error) bool {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("%s: %w", op, err)
	}
	return b.err == nil
}

func (b *Backend) Sync() error {
	err := b.err
	b.err = nil
	return err
}

func (b *Backend) Close() error {
	if b.pool == nil {
		return nil
	}
	C.sb_pool_close(b.pool)
	var errs []error
	for _, m := range append(b.maps, b.scratch, b.threads) {
		errs = append(errs, mem.Unmap(m))
	}
	*b = Backend{kernels: b.kernels, err: errors.New("backend cpu is closed")}
	return errors.Join(errs...)
}
