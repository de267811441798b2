// Package backendtest holds the tests that every backend passes: each op
// against its definition in float64, on shapes that hit the edges of kernels.
package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// Config says what to test and how exact it claims to be.
type Config struct {
	Open func() (backend.Backend, error)
	// Rounding bounds the error of a sum of products, relative to the sum of
	// the products' magnitudes.
	Rounding float64
	// Int8: coded matrices see activations rounded to 8 bits by groups of 64,
	// or of 32 where the matrix has such groups.
	Int8 bool
	// ByShape: the order of a sum may depend on how many rows an op has, so a
	// row may have other bits alone than in a batch.
	ByShape bool
}

// Run runs all tests.
func Run(t *testing.T, c Config) {
	t.Run("slab", c.slab)
	t.Run("linear", c.linear)
	t.Run("linear_parts", c.linearParts)
	t.Run("linears", c.linears)
	t.Run("batch", c.batch)
	t.Run("embed", c.embed)
	t.Run("rms_norm", c.rmsNorm)
	t.Run("rope", c.rope)
	t.Run("attention", c.attention)
	t.Run("attention_rewind", c.attentionRewind)
	t.Run("attention_sinks", c.attentionSinks)
	t.Run("attention_latent", c.attentionLatent)
	t.Run("head_linear", c.headLinear)
	t.Run("concat", c.concat)
	t.Run("experts_clamped", c.expertsClamped)
	t.Run("elementwise", c.elementwise)
	t.Run("route", c.route)
	t.Run("experts", c.experts)
	t.Run("combine", c.combine)
	t.Run("host", c.host)
	t.Run("errors", c.errors)
	t.Run("not_finite", c.notFinite)
	t.Run("overhead", c.overhead)
}

// bench is one open backend with what a test needs to fill it.
type bench struct {
	*testing.T
	Config
	backend.Backend
	rng *rand.Rand
}

func (c Config) bench(t *testing.T) *bench {
	t.Helper()
	b, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, c, b, rand.New(rand.NewPCG(1, 2))}
}

// normal returns n values of the given deviation.
func (b *bench) normal(n int, deviation float64) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(b.rng.NormFloat64() * deviation)
	}
	return values
}

// register returns a register, holding values unless they are nil.
func (b *bench) register(rows, cols int, values []float32) backend.Tensor {
	b.Helper()
	r, err := b.Tensor(rows, cols)
	if err != nil {
		b.Fatal(err)
	}
	if values != nil {
		b.Load(r, values)
		b.sync()
	}
	return r
}

func (b *bench) sync() {
	b.Helper()
	if err := b.Sync(); err != nil {
		b.Fatal(err)
	}
}

// read returns a register's values.
func (b *bench) read(r backend.Tensor) []float32 {
	b.Helper()
	values := make([]float32, r.Rows*r.Cols)
	for i := range r.Rows {
		if err := b.Logits(values[i*r.Cols:][:r.Cols], r, i); err != nil {
			b.Fatal(err)
		}
	}
	return values
}

// slabOf returns a slab that lives as long as the test.
func (b *bench) slabOf(bytes int64) backend.Slab {
	b.Helper()
	s, err := b.Alloc(bytes)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Free)
	return s
}

// vector returns a handle of values.
func (b *bench) vector(values []float32) backend.Vector {
	b.Helper()
	s := b.slabOf(int64(4 * len(values)))
	plane.EncodeFloat32(s.Bytes(), values)
	v, err := b.Vector(s, 0, len(values))
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// matrix is a random matrix and the values it stands for.
type matrix struct {
	backend.Matrix
	format plane.Format
	values []float32 // [Rows][Cols]
	data   []byte
}

func (m *matrix) row(i int) []float32 { return m.values[i*m.Cols:][:m.Cols] }

// matrix makes a matrix with values of about 1/sqrt(cols), in a slab where
// nothing but zeros lies around it.
func (b *bench) matrix(rows, cols int, f plane.Format) *matrix {
	b.Helper()
	align := func(n int64) int64 { return (n + 63) &^ 63 }
	spec := backend.MatrixSpec{Rows: rows, Cols: cols, Format: f}
	spec.Scales = align(f.DataBytes(rows, cols))
	spec.Biases = spec.Scales + align(f.ScaleBytes(rows, cols))
	s := b.slabOf(spec.Biases + max(1, f.ScaleBytes(rows, cols)))
	mem := s.Bytes()
	m := &matrix{format: f, values: make([]float32, rows*cols), data: mem[:f.DataBytes(rows, cols)]}
	deviation := 1 / math.Sqrt(float64(cols))
	if f.Coded() {
		codes := make([]uint8, rows*cols)
		for i := range codes {
			codes[i] = uint8(b.rng.IntN(1 << f.Bits))
		}
		plane.Pack(m.data, codes, f.Bits)
		groups := rows * cols / f.Group
		scales, biases := make([]float32, groups), make([]float32, groups)
		top := float64(int(1)<<f.Bits - 1)
		for i := range scales {
			scales[i] = float32(deviation * 3.5 / top * (0.5 + b.rng.Float64()))
			if b.rng.IntN(2) == 0 {
				scales[i] = -scales[i]
			}
			biases[i] = float32(-float64(scales[i]) * top / 2 * (0.8 + 0.4*b.rng.Float64()))
		}
		f.Scale.Encode(mem[spec.Scales:], scales)
		f.Scale.Encode(mem[spec.Biases:], biases)
	} else if values := b.normal(rows*cols, deviation); f.Bits == 32 {
		plane.EncodeFloat32(m.data, values)
	} else {
		f.Scale.Encode(m.data, values)
	}
	planes := plane.Matrix{Rows: rows, Cols: cols, Format: f, Data: m.data, Scales: mem[spec.Scales:spec.Biases], Biases: mem[spec.Biases:]}
	planes.Dequantize(m.values)
	var err error
	if m.Matrix, err = b.Matrix(s, spec); err != nil {
		b.Fatal(err)
	}
	return m
}

// linear makes a Linear of matrices and perhaps a bias.
func (b *bench) linear(bias []float32, parts ...*matrix) *backend.Linear {
	w := &backend.Linear{N: len(parts)}
	for i, m := range parts {
		w.Parts[i] = m.Matrix
	}
	if bias != nil {
		w.Bias = b.vector(bias)
	}
	return w
}

// product is one output of a Linear in float64, and how far a backend may be
// from it.
func (b *bench) product(x []float32, r int, bias []float32, parts ...*matrix) (value, bound float64) {
	if bias != nil {
		value = float64(bias[r])
		bound = b.Rounding * math.Abs(value)
	}
	for _, m := range parts {
		row := m.row(r)
		for i, w := range row {
			p := float64(w) * float64(x[i])
			value += p
			bound += b.Rounding * math.Abs(p)
		}
		if b.Int8 && m.format.Coded() {
			// A rounded activation is off by up to half a unit of 1/127 of its
			// group's largest.
			group := min(64, m.format.Group)
			for at := 0; at < len(x); at += group {
				end := min(at+group, len(x))
				var highest, weight float64
				for i := at; i < end; i++ {
					highest = max(highest, math.Abs(float64(x[i])))
					weight += math.Abs(float64(row[i]))
				}
				bound += highest / 254 * weight * 1.001
			}
		}
	}
	return value, bound + 1e-30
}

// same reports whether two ways to compute a value gave the same bits, as far
// as the backend promises that.
func (c Config) same(a, b []float32) bool { return c.ByShape || slices.Equal(a, b) }

// near fails unless got is within bound of want.
func (b *bench) near(got float32, want, bound float64, what string, args ...any) {
	if !(math.Abs(float64(got)-want) <= bound) {
		b.Helper()
		b.Fatalf("%s: got %v, want %v within %.3g", fmt.Sprintf(what, args...), got, want, bound)
	}
}

func formats() []plane.Format {
	all := []plane.Format{{Bits: 32}, {Bits: 16, Scale: plane.BF16}, {Bits: 16, Scale: plane.F16}}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			for _, scale := range []plane.Float{plane.BF16, plane.F16} {
				all = append(all, plane.Format{Bits: bits, Group: group, Scale: scale})
			}
		}
	}
	return all
}

func describe(f plane.Format, rows, cols, tokens int) string {
	return fmt.Sprintf("%d bits, group %d, %v, [%d, %d], %d tokens", f.Bits, f.Group, f.Scale, rows, cols, tokens)
}
