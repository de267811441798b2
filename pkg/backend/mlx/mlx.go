//go:build cgo

package mlx

// #cgo CFLAGS: -std=c11 -O2 -Wall -Wextra
// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "load.h"
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

// Backend implements backend.Backend.
type Backend struct {
	table   contract.Table
	api     *C.sbmlx_api
	engine  *C.sbmlx_engine
	message *C.sbmlx_message // of the last failed call
	path    string
	base    int64 // memory that opening took
	scratch int64 // and that ops take at most
	held    int64 // by registers and caches
	err     error

	// The angles that rope turns by at present, and what they are for.
	turn turn
	// Scratch that calls read from or write to.
	experts []C.sbmlx_expert
	rows    []C.int32_t
	logits  []float32
}

var (
	_ backend.Based   = (*Backend)(nil)
	_ backend.Metered = (*Backend)(nil)
	_ backend.Partial = (*Backend)(nil)
)

// Remedy is what to do when Open fails because the shim is missing, or does
// not fit this program or the MLX at hand.
const Remedy = `run "make mlx" to build the part that loads MLX`

// baseUnit is what the memory that opening takes is rounded up to: a few pages
// more or less, which are chance, must not decide what a run keeps in memory.
const baseUnit = 4 << 20

// Open loads the shim and checks the MLX at hand; Remedy mends what it finds
// wrong. It locks the calling goroutine to its thread, until Close.
func Open(o Options) (backend.Backend, error) {
	path, err := o.library()
	if err != nil {
		return nil, err
	}
	before, err := resident()
	if err != nil {
		return nil, err
	}
	b := &Backend{message: (*C.sbmlx_message)(C.calloc(1, C.sizeof_sbmlx_message))}
	runtime.LockOSThread()
	if err := b.start(path); err != nil {
		runtime.UnlockOSThread()
		C.free(unsafe.Pointer(b.message))
		return nil, err
	}
	after, err := resident()
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.base = (max(0, after-before)/baseUnit + 1) * baseUnit
	return b, nil
}

// resident is the memory of this process.
func resident() (int64, error) {
	m, err := mem.NewMeter()
	if err != nil {
		return 0, err
	}
	u, err := m.Read()
	return u.Resident, errors.Join(err, m.Close())
}

// start loads the library and makes an engine.
func (b *Backend) start(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if b.api = C.sb_mlx_load(name, b.message); b.api == nil {
		return b.failure()
	}
	if b.engine = C.sb_mlx_open(b.api, b.message); b.engine == nil {
		return fmt.Errorf("%s: %w", path, b.failure())
	}
	var info C.sbmlx_info
	C.sb_mlx_info(b.api, b.engine, &info)
	device := "cpu"
	if info.gpu != 0 {
		device = "metal"
	}
	b.path, b.scratch = device+"-"+C.GoString(&info.mlx[0]), int64(info.scratch)
	return nil
}

// A DeviceError is a failure of MLX or its device, such as memory that is out:
// no fault of the call.
type DeviceError struct{ text string }

func (e *DeviceError) Error() string { return e.text }

// ExitCode is that of tools whose device fails.
func (e *DeviceError) ExitCode() int { return 4 }

// result is the error of a call by its code.
func (b *Backend) result(code C.int) error {
	if code == C.SBMLX_OK {
		return nil
	}
	text := C.GoString(&b.message.text[0])
	if code == C.SBMLX_WRONG {
		return errors.New(text)
	}
	return &DeviceError{text}
}

// failure is the error of a call that could not do what it should.
func (b *Backend) failure() error { return b.result(C.SBMLX_FAILED) }

func (b *Backend) Name() string { return "mlx" }

// Path is the device and the version of MLX: "metal-0.32.4".
func (b *Backend) Path() string { return b.path }

// slab is memory of MLX's allocator. It outlives its backend.
type slab struct {
	api *C.sbmlx_api
	c   *C.sbmlx_slab
	mem []byte
}

func (s *slab) Bytes() []byte { return s.mem }

func (s *slab) Free() {
	if s.c != nil {
		C.sb_mlx_slab_free(s.api, s.c)
		s.c, s.mem = nil, nil
	}
}

func (b *Backend) Alloc(bytes int64) (backend.Slab, error) {
	if b.engine == nil {
		return nil, b.err
	}
	const most = 1 << 46 // no machine has more, and sums of sizes stay far from overflow
	if bytes <= 0 || bytes > most {
		return nil, fmt.Errorf("slab of %d bytes: not a size", bytes)
	}
	c := C.sb_mlx_slab_new(b.api, b.engine, C.int64_t(bytes))
	if c == nil {
		return nil, fmt.Errorf("slab of %d bytes: %w", bytes, b.failure())
	}
	base := (*byte)(C.sb_mlx_slab_bytes(b.api, c))
	return &slab{b.api, c, unsafe.Slice(base, bytes)}, nil
}

// own is a slab as one of this backend's.
func (b *Backend) own(s backend.Slab) (*slab, error) {
	if b.engine == nil {
		return nil, b.err
	}
	own, ok := s.(*slab)
	if !ok || own.c == nil {
		return nil, errors.New("slab is freed or not of this backend")
	}
	return own, nil
}

func (b *Backend) Matrix(s backend.Slab, spec backend.MatrixSpec) (backend.Matrix, error) {
	own, err := b.own(s)
	if err != nil {
		return backend.Matrix{}, err
	}
	handle, _, err := b.table.AddMatrix(own.mem, spec)
	if err != nil {
		return backend.Matrix{}, err
	}
	m := C.sbmlx_matrix{
		data: C.int64_t(spec.Data), scales: C.int64_t(spec.Scales), biases: C.int64_t(spec.Biases),
		rows: C.int32_t(spec.Rows), cols: C.int32_t(spec.Cols),
		bits: C.int32_t(spec.Format.Bits), group: C.int32_t(spec.Format.Group),
	}
	if spec.Format.Scale == plane.F16 {
		m.f16 = 1
	}
	if err := b.result(C.sb_mlx_matrix(b.api, b.engine, own.c, &m)); err != nil {
		return backend.Matrix{}, fmt.Errorf("matrix [%d, %d]: %w", spec.Rows, spec.Cols, err)
	}
	return handle, nil
}

func (b *Backend) Vector(s backend.Slab, offset int64, n int) (backend.Vector, error) {
	own, err := b.own(s)
	if err != nil {
		return backend.Vector{}, err
	}
	handle, _, err := b.table.AddVector(own.mem, offset, n)
	if err != nil {
		return backend.Vector{}, err
	}
	if err := b.result(C.sb_mlx_vector(b.api, b.engine, own.c, C.int64_t(offset), C.int32_t(n))); err != nil {
		return backend.Vector{}, fmt.Errorf("vector of %d: %w", n, err)
	}
	return handle, nil
}

func (b *Backend) Tensor(rows, cols int) (backend.Tensor, error) {
	if b.engine == nil {
		return backend.Tensor{}, b.err
	}
	handle, err := b.table.AddTensor(rows, cols)
	if err != nil {
		return backend.Tensor{}, err
	}
	if err := b.result(C.sb_mlx_tensor(b.api, b.engine, C.int32_t(rows), C.int32_t(cols))); err != nil {
		return backend.Tensor{}, fmt.Errorf("register [%d, %d]: %w", rows, cols, err)
	}
	b.held += 4 * int64(rows) * int64(cols)
	return handle, nil
}

func (b *Backend) KV(spec backend.KVSpec) (backend.KV, error) {
	if b.engine == nil {
		return backend.KV{}, b.err
	}
	handle, err := b.table.AddKV(spec)
	if err != nil {
		return backend.KV{}, err
	}
	var f16 C.int32_t
	if spec.Type == "f16" {
		f16 = 1
	}
	if err := b.result(C.sb_mlx_kv(b.api, b.engine, C.int32_t(spec.Heads), C.int32_t(spec.Context), C.int32_t(spec.HeadDim), f16)); err != nil {
		return backend.KV{}, fmt.Errorf("KV cache: %w", err)
	}
	b.held += 2 * int64(spec.Heads) * int64(spec.Context) * int64(spec.HeadDim) * backend.KVWidth(spec.Type)
	return handle, nil
}

// Overhead counts registers and caches at full size, and about the most that
// MLX holds for ops under way.
func (b *Backend) Overhead() int64 { return b.held + b.scratch }

// BaseBytes is the memory that opening took, for the most part MLX's code, and
// about the most that MLX holds for ops under way.
func (b *Backend) BaseBytes() int64 { return b.base + b.scratch }

// Memory reads what MLX's allocator holds; resetPeak begins a new peak.
func (b *Backend) Memory(resetPeak bool) (backend.Memory, error) {
	if b.engine == nil {
		return backend.Memory{}, b.err
	}
	var m C.sbmlx_memory
	var reset C.int32_t
	if resetPeak {
		reset = 1
	}
	if err := b.result(C.sb_mlx_memory(b.api, b.engine, &m, reset)); err != nil {
		return backend.Memory{}, err
	}
	return backend.Memory{Active: int64(m.active), Cache: int64(m.cache), Peak: int64(m.peak)}, nil
}

// ok reports whether an op may run: nothing failed before it and its own
// arguments are right. The first failure sticks.
func (b *Backend) ok(op string, err error) bool {
	b.stick(op, err)
	return b.err == nil
}

// done keeps the failure of a call.
func (b *Backend) done(op string, code C.int) {
	if err := b.result(code); err != nil {
		b.stick(op, err)
	}
}

func (b *Backend) stick(op string, err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("%s: %w", op, err)
	}
}

// Sync computes everything that is still to be computed, even after a failure:
// kernels under way read slabs that the caller is about to overwrite.
func (b *Backend) Sync() error {
	if b.engine == nil {
		return b.err
	}
	b.done("sync", C.sb_mlx_sync(b.api, b.engine))
	err := b.err
	b.err = nil
	return err
}

func (b *Backend) Close() error {
	if b.engine == nil {
		return nil
	}
	C.sb_mlx_close(b.api, b.engine)
	C.free(unsafe.Pointer(b.message))
	*b = Backend{path: b.path, err: errors.New("backend mlx is closed")}
	runtime.UnlockOSThread()
	return nil
}
