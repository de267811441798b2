//go:build cgo

package mlx

import (
	"os"
	"strings"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
	"substrate/pkg/plane"
)

// available skips the test unless the shim was built; where the environment
// names it, it must load.
func available(t testing.TB) {
	t.Helper()
	b, err := Open(Options{})
	if err == nil {
		b.Close()
		return
	}
	if os.Getenv(LibraryVariable) != "" {
		t.Fatal(err)
	}
	t.Skipf("%v: %s", err, Remedy)
}

// config is what the backend promises here. MLX adds products up in float32,
// one after the other, which over the few thousand of a row leaves errors of
// the order of 1e-6 of their magnitudes. On the GPU it picks kernels by shape;
// its kernels for the CPU compute every row alike.
func config(t testing.TB) backendtest.Config {
	t.Helper()
	k := start(t)
	return backendtest.Config{
		Open:     func() (backend.Backend, error) { return Open(Options{}) },
		Rounding: 0x1p-20,
		ByShape:  !strings.HasPrefix(k.Path(), "cpu"),
	}
}

func TestConformance(t *testing.T) { backendtest.Run(t, config(t)) }

func FuzzProducts(f *testing.F)  { backendtest.FuzzProducts(f, config(f)) }
func FuzzAttention(f *testing.F) { backendtest.FuzzAttention(f, config(f)) }
func FuzzExperts(f *testing.F)   { backendtest.FuzzExperts(f, config(f)) }

// kit is an open backend with what a test needs to fill it.
type kit struct {
	testing.TB
	*Backend
}

func start(t testing.TB) *kit {
	t.Helper()
	available(t)
	b, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &kit{t, b.(*Backend)}
}

func (k *kit) slab(bytes int64) backend.Slab {
	k.Helper()
	s, err := k.Alloc(bytes)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(s.Free)
	return s
}

// register returns a register, holding value everywhere.
func (k *kit) register(rows, cols int, value float32) backend.Tensor {
	k.Helper()
	r, err := k.Tensor(rows, cols)
	if err != nil {
		k.Fatal(err)
	}
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = value
	}
	k.Load(r, values)
	return r
}

// coded makes a matrix of 4-bit codes in groups of 64 at the start of a slab.
func (k *kit) coded(s backend.Slab, rows, cols int) (backend.Matrix, backend.MatrixSpec) {
	k.Helper()
	f := plane.Format{Bits: 4, Group: 64}
	spec := backend.MatrixSpec{Rows: rows, Cols: cols, Format: f, Scales: f.DataBytes(rows, cols)}
	spec.Biases = spec.Scales + f.ScaleBytes(rows, cols)
	m, err := k.Matrix(s, spec)
	if err != nil {
		k.Fatal(err)
	}
	return m, spec
}

// codedBytes is the slab that coded needs.
func codedBytes(rows, cols int) int64 {
	f := plane.Format{Bits: 4, Group: 64}
	return f.DataBytes(rows, cols) + 2*f.ScaleBytes(rows, cols)
}

// fill sets every code and every scale of a matrix; biases are 0.
func fill(s backend.Slab, spec backend.MatrixSpec, code byte, scale float32) {
	mem := s.Bytes()
	for i := range spec.Format.DataBytes(spec.Rows, spec.Cols) {
		mem[spec.Data+i] = code * 0x11
	}
	groups := spec.Rows * spec.Cols / spec.Format.Group
	scales := make([]float32, groups)
	for i := range scales {
		scales[i] = scale
	}
	spec.Format.Scale.Encode(mem[spec.Scales:], scales)
}

// ones is a vector of ones.
func (k *kit) ones(n int) backend.Vector {
	k.Helper()
	values := make([]float32, n)
	for i := range values {
		values[i] = 1
	}
	s := k.slab(int64(4 * n))
	plane.EncodeFloat32(s.Bytes(), values)
	v, err := k.Vector(s, 0, n)
	if err != nil {
		k.Fatal(err)
	}
	return v
}

// row reads a register's row.
func (k *kit) row(x backend.Tensor, row int) []float32 {
	k.Helper()
	values := make([]float32, x.Cols)
	if err := k.Logits(values, x, row); err != nil {
		k.Fatal(err)
	}
	return values
}

func one(m backend.Matrix) *backend.Linear {
	return &backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{m}}
}

func (k *kit) memory(resetPeak bool) backend.Memory {
	k.Helper()
	m, err := k.Memory(resetPeak)
	if err != nil {
		k.Fatal(err)
	}
	return m
}

func (k *kit) sync() {
	k.Helper()
	if err := k.Sync(); err != nil {
		k.Fatal(err)
	}
}
