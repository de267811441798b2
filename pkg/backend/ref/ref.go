// Package ref is the reference backend: pure Go, no cgo, every op written as
// its definition reads. Values are float32 between ops; inside an op sums are
// float64 in a fixed order, so a result is the correctly computed one rounded
// once, on every machine and with any number of threads.
//
// It is what the other backends are tested against, and runs where they don't.
package ref

import (
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
	table    contract.Table
	tensors  [][]float32
	matrices []plane.Matrix
	vectors  [][]float32
	caches   []cache
	maps     [][]byte // registers and caches, freed by Close
	held     int64
	workers  []worker
	gate, up []float32 // [expertRows][widest input]: intermediates of Experts
	err      error
}

var _ backend.Backend = (*Backend)(nil)

// expertRows is how many rows of an expert are computed at a time.
const expertRows = 16

// worker is the scratch of one goroutine of an op.
type worker struct {
	weights []float32 // one row of a matrix
	sums    []float64 // one sum per row of x
	scores  []float64 // one score per position
}

// Open returns a backend that uses the given number of threads, or one per
// processor if it is 0.
func Open(threads int) *Backend {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Backend{workers: make([]worker, threads)}
}

func (b *Backend) Name() string { return "ref" }
func (b *Backend) Path() string { return "go" }

// slab is anonymous memory.
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
		return nil, fmt.Errorf("slab is freed or not of this backend")
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
	b.matrices = append(b.matrices, m)
	for i := range b.workers {
		grow(b, &b.workers[i].weights, m.Cols)
	}
	grow(b, &b.gate, expertRows*m.Cols)
	grow(b, &b.up, expertRows*m.Cols)
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
	b.vectors = append(b.vectors, floats[float32](bytes))
	return handle, nil
}

func (b *Backend) Tensor(rows, cols int) (backend.Tensor, error) {
	handle, err := b.table.AddTensor(rows, cols)
	if err != nil {
		return backend.Tensor{}, err
	}
	m, err := b.hold(4 * int64(rows) * int64(cols))
	if err != nil {
		return backend.Tensor{}, fmt.Errorf("register [%d, %d]: %w", rows, cols, err)
	}
	b.tensors = append(b.tensors, floats[float32](m))
	for i := range b.workers {
		grow(b, &b.workers[i].sums, rows)
	}
	return handle, nil
}

// hold allocates memory that lives until Close.
func (b *Backend) hold(bytes int64) ([]byte, error) {
	m, err := mem.Map(bytes)
	if err != nil {
		return nil, err
	}
	b.maps = append(b.maps, m)
	b.held += bytes
	return m, nil
}

// grow makes scratch at least n long. It is called while handles are made, so
// that ops allocate nothing of size.
func grow[T float32 | float64](b *Backend, s *[]T, n int) {
	if n > len(*s) {
		b.held += int64(n-len(*s)) * int64(unsafe.Sizeof((*s)[0]))
		*s = make([]T, n)
	}
}

// floats views bytes, which a slab or mapping aligns, as numbers.
func floats[T float32 | uint16](bytes []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/int(unsafe.Sizeof(*new(T))))
}

func (b *Backend) Overhead() int64 { return b.held }

// tensor returns a register's values.
func (b *Backend) tensor(t backend.Tensor) []float32 {
	return b.tensors[t.ID-1][:t.Rows*t.Cols]
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
	var first error
	for _, m := range b.maps {
		if err := mem.Unmap(m); err != nil && first == nil {
			first = err
		}
	}
	*b = Backend{err: fmt.Errorf("backend ref is closed")}
	return first
}
