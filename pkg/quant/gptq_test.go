package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// correlated are rows of inputs of which a few directions carry most.
func correlated(rng *rand.Rand, rows, cols, rank int) []float32 {
	basis := make([]float64, rank*cols)
	for i := range basis {
		basis[i] = rng.NormFloat64()
	}
	x := make([]float32, rows*cols)
	for r := range rows {
		for k := range rank {
			a := rng.NormFloat64() * 3 / float64(k+1)
			for c := range cols {
				x[r*cols+c] += float32(a * basis[k*cols+c])
			}
		}
		for c := range cols {
			x[r*cols+c] += float32(0.3 * rng.NormFloat64())
		}
	}
	return x
}

func gramOf(x []float32, cols int) []float32 {
	gram := make([]float32, cols*cols)
	AddGram(backend.PlainGEMM, gram, x, cols)
	n := float32(len(x) / cols)
	for i := range gram {
		gram[i] /= n
	}
	return gram
}

// outputError is the squared error of the outputs for the inputs of a Gram
// matrix, sum of e^T H e over rows, the slow way.
func outputError(w []float32, m plane.Matrix, gram []float32) (sum float64) {
	got := make([]float32, len(w))
	m.Dequantize(got)
	for r := range m.Rows {
		for i := range m.Cols {
			ei := float64(w[r*m.Cols+i]) - float64(got[r*m.Cols+i])
			for j := range m.Cols {
				sum += ei * float64(gram[i*m.Cols+j]) * (float64(w[r*m.Cols+j]) - float64(got[r*m.Cols+j]))
			}
		}
	}
	return sum
}

func TestDecompose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, cols := range []int{32, 64, 96} {
		gram := gramOf(correlated(rng, 40, cols, 5), cols)
		c := newCurvature(gram, cols, 32, gptqDamping, backend.PlainGEMM)
		sorted := slices.Clone(c.order)
		slices.Sort(sorted)
		for i, v := range sorted {
			if i != v {
				t.Fatalf("%d columns: order %v is no permutation", cols, c.order)
			}
		}
		for i := range cols {
			for j := range cols {
				var sum float64
				for k := max(i, j); k < cols; k++ {
					u := func(a int) float64 {
						if a == k {
							return 1
						}
						return float64(c.u[a*cols+k])
					}
					sum += float64(c.d[k]) * u(i) * u(j)
				}
				if want := float64(c.h[i*cols+j]); math.Abs(sum-want) > 1e-4*math.Sqrt(float64(c.h[i*cols+i]*c.h[j*cols+j])) {
					t.Fatalf("%d columns: U D U^T [%d, %d] is %g, want %g", cols, i, j, sum, want)
				}
			}
		}
	}
}

// gptq leaves much less of the outputs' error than lsq where inputs are
// correlated, at every width and group, and the descent never raises it.
func TestGPTQ(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const rows, cols = 24, 256
	x := correlated(rng, 600, cols, 24)
	gram := gramOf(x, cols)
	moments := make([]float32, cols)
	for i := range moments {
		moments[i] = gram[i*cols+i]
	}
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * 0.02
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			f := plane.Format{Bits: bits, Group: group}
			fit := func(fitter Fitter) float64 {
				m := newMatrix(rows, cols, f)
				if err := fitter.Fit(m, w); err != nil {
					t.Fatal(err)
				}
				return outputError(w, m, gram)
			}
			q := newGPTQ(f, newCurvature(gram, cols, group, gptqDamping, backend.PlainGEMM))
			ratio := fit(q) / fit(newLSQ(f, moments))
			t.Logf("%d bits, groups of %d: %.3f of lsq's error", bits, group, ratio)
			if ratio > 0.6 {
				t.Errorf("%d bits, groups of %d: %.3f of lsq's error, want at most 0.6", bits, group, ratio)
			}
		}
	}
}

// A row's codes do not depend on the rows that are fitted with it.
func TestGPTQRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const n, cols = 7, 128
	f := plane.Format{Bits: 3, Group: 64}
	q := newGPTQ(f, newCurvature(gramOf(correlated(rng, 300, cols, 9), cols), cols, f.Group, gptqDamping, backend.PlainGEMM))
	w := make([]float32, n*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	whole, apart := newMatrix(n, cols, f), newMatrix(n, cols, f)
	if err := q.Fit(whole, w); err != nil {
		t.Fatal(err)
	}
	for r := range n {
		if err := q.Fit(rows(apart, r, 1), w[r*cols:][:cols]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(whole.Data, apart.Data) || !bytes.Equal(whole.Scales, apart.Scales) || !bytes.Equal(whole.Biases, apart.Biases) {
		t.Error("rows fitted together and apart differ")
	}
}

// Whatever the weights and inputs, all is finite and at least as good as
// min-max by gptq's measure, or the error names the value.
func FuzzGPTQ(f *testing.F) {
	for kind := range uint8(8) {
		for inputs := range uint8(5) {
			f.Add(uint64(kind)*7+1, kind, inputs, uint8(kind+inputs))
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, kind, inputs, bits uint8) {
		rng := rand.New(rand.NewPCG(seed, 9))
		const rows, cols = 3, 128
		format := plane.Format{Bits: []int{2, 3, 4, 5, 6, 8}[bits%6], Group: []int{32, 64, 128}[bits%3]}
		if bits&1 == 1 {
			format.Scale = plane.F16
		}
		w := make([]float32, rows*cols)
		for i := range w {
			v := rng.NormFloat64()
			switch kind % 8 {
			case 1:
				v *= 1e-40 // denormals
			case 2:
				v *= 1e30
			case 3:
				if rng.IntN(50) == 0 {
					v *= 1e4 // outliers
				}
			case 4:
				if i/32%2 == 0 {
					v = 0 // zero groups
				}
			case 5:
				v = 0
			case 6:
				v = -0.25 // constant
			case 7:
				v = math.Exp(20 * v)
			}
			w[i] = float32(v)
		}
		var x []float32
		switch inputs % 5 {
		case 0:
			x = correlated(rng, 200, cols, 6)
		case 1:
			x = correlated(rng, 1, cols, 1) // one token: rank 1
		case 2:
			x = make([]float32, 4*cols) // never anything but zero
		case 3:
			x = correlated(rng, 50, cols, 3)
			for i := range x {
				if i%cols%3 == 0 {
					x[i] = 0 // dead inputs
				}
			}
		case 4:
			x = correlated(rng, 50, cols, 3)
			for i := range x {
				if i%cols == 17 {
					x[i] *= 1e4 // one input outshines all
				}
			}
		}
		gram := gramOf(x, cols)
		c := newCurvature(gram, cols, format.Group, gptqDamping, backend.PlainGEMM)
		if c == nil {
			if inputs%5 != 2 {
				t.Fatal("no curvature")
			}
			return
		}
		m, control := newMatrix(rows, cols, format), newMatrix(rows, cols, format)
		if err := newGPTQ(format, c).Fit(m, w); err != nil {
			if (minMax{}).Fit(control, w) == nil && kind%8 != 7 {
				t.Fatalf("values that minmax codes: %v", err)
			}
			return
		}
		got := make([]float32, len(w))
		m.Dequantize(got)
		for i, v := range got {
			if !finite(v) {
				t.Fatalf("value %d, %g, became %g", i, w[i], v)
			}
		}
	})
}

// Statistics keep Gram matrices and rows, in memory and in a file.
func TestGram(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const cols = 32
	memory := NewStats()
	set := func(op, role string, rows int) []float32 {
		x := correlated(rng, rows, cols, 4)
		for i := range x {
			x[i] = plane.BF16.Round(x[i])
		}
		gram := gramOf(x, cols)
		mean := make([]float32, cols)
		for i := range mean {
			mean[i] = gram[i*cols+i]
		}
		if err := memory.Set(op, role, int64(rows), mean); err != nil {
			t.Fatal(err)
		}
		var err error
		if rows > cols {
			err = memory.SetGram(op, role, gram, cols)
		} else {
			err = memory.SetRows(op, role, x, cols)
		}
		if err != nil {
			t.Fatal(err)
		}
		return gram
	}
	attn := set("block_0.attn", "q", 70)
	e0, e1 := set("block_0.expert_0", "gate", 96), set("block_0.expert_1", "gate", 32)
	mix := func(a, b []float32, share float64) []float32 {
		out := make([]float32, len(a))
		for i := range a {
			out[i] = float32(share*float64(a[i]) + (1-share)*float64(b[i]))
		}
		return out
	}
	layer := mix(e0, e1, 0.75)
	var b bytes.Buffer
	if err := memory.Write(&b); err != nil {
		t.Fatal(err)
	}
	file, err := ReadStats("stats", bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Stats{"memory": memory, "file": file} {
		for _, c := range []struct {
			op, role string
			want     []float32
		}{
			{"block_0.attn", "v", attn},
			{"block_0.expert_0", "up", mix(e0, layer, 96./(96+expertGramTokens))},
			{"block_0.expert_1", "gate", mix(e1, layer, 32./(32+expertGramTokens))},
			{"block_0.expert_7", "gate", layer}, // never seen
			{"block_1.attn", "q", nil},
		} {
			got, err := s.Gram(c.op, c.role, cols)
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("%s: %s: %d values, %v", name, c.op, len(got), err)
			}
			for i, v := range got {
				if math.Abs(float64(v-c.want[i])) > 1e-5*math.Abs(float64(c.want[i]))+1e-5 {
					t.Fatalf("%s: %s: value %d is %g, want %g", name, c.op, i, v, c.want[i])
				}
			}
		}
		if _, err := s.Gram("block_0.attn", "q", cols+1); err == nil {
			t.Errorf("%s: a Gram matrix of another width: no error", name)
		}
	}
	if err := memory.SetGram("block_9.attn", "q", attn, cols); err == nil {
		t.Error("a Gram matrix without moments: no error")
	}
	attn[3] = float32(math.Inf(1))
	if err := memory.SetGram("block_0.attn", "q", attn, cols); err == nil {
		t.Error("an infinity in a Gram matrix: no error")
	}
}

func TestGramLimit(t *testing.T) {
	inputs := []GramInput{{Cols: 100, Count: 1, Tokens: 5000}, {Cols: 40, Count: 8, Tokens: 1000}}
	for _, c := range []struct {
		bytes int64
		want  int
	}{
		{0, 0},
		{1 << 30, 101},             // all of it: Gram matrices everywhere
		{2*100*10 + 2*40*8*10, 10}, // ten rows each
		{2*100*10 + 2*40*8*10 - 1, 9},
	} {
		if got := GramLimit(inputs, c.bytes); got != c.want {
			t.Errorf("%d bytes: %d rows, want %d", c.bytes, got, c.want)
		}
	}
}
