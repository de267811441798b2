package quant

import (
	"math"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// curvature is what gptq knows of the inputs of a matrix: the Gram matrix H of
// the squared error that a row's errors e make at the output, e^T H e, and its
// decomposition H = U D U^T with U unit upper triangular. In those terms the
// error is
//
//	sum over k of d[k] * (e[k] + sum over j < k of U[j,k]*e[j])^2
//
// so that the best that column k can do about the errors of the columns before
// it is to aim at w[k] + sum U[j,k]*e[j] (LDLQ, which is what GPTQ does without
// inverting H: Chee et al. 2023, Frantar et al. 2022).
//
// Columns are in the order in which they are coded: groups of more energy
// first, and within a group columns of more energy first, for what comes first
// has most columns left to make up for it.
type curvature struct {
	cols  int
	order []int     // order[k] is the column coded k-th
	h, u  []float32 // [cols][cols] in that order; h has mean diagonal 1
	d     []float32
	gemm  backend.GEMM
}

// newCurvature orders, damps and decomposes a Gram matrix. damping is added to
// the diagonal, in units of its mean.
func newCurvature(gram []float32, cols, group int, damping float64, gemm backend.GEMM) *curvature {
	var trace float64
	for i := range cols {
		trace += float64(gram[i*cols+i])
	}
	if !(trace > 0) {
		return nil // no input was ever anything but zero
	}
	c := &curvature{cols: cols, order: energyOrder(gram, cols, group), gemm: gemm}
	scale := float64(cols) / trace
	c.h = make([]float32, cols*cols)
	for i, a := range c.order {
		row := gram[a*cols:][:cols]
		for j, b := range c.order {
			c.h[i*cols+j] = float32(float64(row[b]) * scale)
		}
		c.h[i*cols+i] += float32(damping)
	}
	c.decompose(damping)
	return c
}

// energyOrder sorts groups by their energy and columns within groups by theirs.
func energyOrder(gram []float32, cols, group int) []int {
	energy := make([]float64, cols)
	groups := make([]int, cols/group)
	sums := make([]float64, len(groups))
	order := make([]int, cols)
	for i := range energy {
		energy[i] = float64(gram[i*cols+i])
		sums[i/group] += energy[i]
		order[i] = i
	}
	for i := range groups {
		groups[i] = i
	}
	sortDescending(groups, sums)
	out := make([]int, 0, cols)
	for _, g := range groups {
		members := order[g*group : (g+1)*group]
		sortDescending(members, energy)
		out = append(out, members...)
	}
	return out
}

// decompose fills u and d. In reverse order of columns it is a Cholesky
// decomposition, computed by rows in float64.
func (c *curvature) decompose(floor float64) {
	n := c.cols
	l := make([]float64, n*n)
	at := func(i, j int) float64 { return float64(c.h[(n-1-i)*n+n-1-j]) }
	for i0 := 0; i0 < n; i0 += 4 {
		rows := min(4, n-i0)
		if rows == 4 {
			x, y, z, u := l[i0*n:][:n], l[(i0+1)*n:][:n], l[(i0+2)*n:][:n], l[(i0+3)*n:][:n]
			for j := range i0 {
				lj := l[j*n:][:j+1]
				s0, s1, s2, s3 := dots(lj[:j], x, y, z, u)
				inv := 1 / lj[j]
				x[j] = float64((at(i0, j) - s0) * inv)
				y[j] = float64((at(i0+1, j) - s1) * inv)
				z[j] = float64((at(i0+2, j) - s2) * inv)
				u[j] = float64((at(i0+3, j) - s3) * inv)
			}
		}
		for i := i0; i < i0+rows; i++ {
			first := i0
			if rows < 4 {
				first = 0
			}
			for j := first; j <= i; j++ {
				s := at(i, j)
				for m, v := range l[j*n:][:j] {
					s -= float64(v * l[i*n+m])
				}
				if j < i {
					l[i*n+j] = s / l[j*n+j]
				} else {
					// What is left of a column when all others are known is
					// at least the damping, but for rounding.
					l[i*n+i] = math.Sqrt(max(s, 0.5*floor))
				}
			}
		}
	}
	c.u, c.d = make([]float32, n*n), make([]float32, n)
	for k := range n {
		p := l[(n-1-k)*n+n-1-k]
		c.d[k] = float32(p * p)
		for j := range k {
			c.u[j*n+k] = float32(l[(n-1-j)*n+n-1-k] / p)
		}
	}
}

// dots are the products of a with four rows.
func dots(a, x, y, z, u []float64) (s0, s1, s2, s3 float64) {
	x, y, z, u = x[:len(a)], y[:len(a)], z[:len(a)], u[:len(a)]
	for i, v := range a {
		s0 += float64(v * x[i])
		s1 += float64(v * y[i])
		s2 += float64(v * z[i])
		s3 += float64(v * u[i])
	}
	return s0, s1, s2, s3
}

// keptBytes bounds the curvatures that are kept for the next matrix of the same
// input, the next level or the next expert of a layer.
const keptBytes = 96 << 20

// FitBytes is what an encoder holds for a fit to a matrix of cols inputs,
// beside [WorkBytes] for each goroutine.
func FitBytes(fit string, cols int) int64 {
	if fit != "gptq" {
		return 0
	}
	// The Gram matrix, the curvature, its decomposition in float64, and what
	// is kept of others.
	return 20*int64(cols)*int64(cols) + keptBytes
}

// keptCurvature is a curvature by what it depends on.
type keptCurvature struct {
	key curvatureKey
	c   *curvature
}

type curvatureKey struct {
	input   string
	group   int
	damping float64
}

// curvature returns the curvature of a matrix's error, nil if nothing is known
// of its inputs.
func (s *Stats) curvature(op *doc.Op, role string, cols, group int) (*curvature, error) {
	if s == nil {
		return nil, nil
	}
	key := curvatureKey{InputName(op.ID, role), group, gptqDamping}
	if op.Kind == doc.KindEmbedding {
		key.damping = lookupDamping
	}
	s.mu.Lock()
	for i, k := range s.curvatures {
		if k.key == key && k.c.cols == cols {
			copy(s.curvatures[1:], s.curvatures[:i])
			s.curvatures[0] = k
			s.mu.Unlock()
			return k.c, nil
		}
	}
	s.mu.Unlock()
	gram, err := s.Gram(op.ID, role, cols)
	if err != nil || gram == nil {
		return nil, err
	}
	c := newCurvature(gram, cols, group, key.damping, s.gemm())
	if c == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.curvatures = append([]keptCurvature{{key, c}}, s.curvatures...)
	left := int64(keptBytes)
	for i, k := range s.curvatures {
		left -= 8 * int64(k.c.cols) * int64(k.c.cols)
		if i > 0 && left < 0 {
			clear(s.curvatures[i:])
			s.curvatures = s.curvatures[:i]
			break
		}
	}
	return c, nil
}

func (s *Stats) gemm() backend.GEMM {
	if s.GEMM == nil {
		return backend.PlainGEMM
	}
	return s.GEMM
}
