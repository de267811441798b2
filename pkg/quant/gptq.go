package quant

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"substrate/pkg/plane"
)

// gptq looks for the codes, scales and biases of a matrix that minimise the
// squared error of its output over the inputs that calibration saw, e^T H e
// for the errors e of each row.
//
//  1. Group by group, scale and bias are fitted (as lsq does, weighted by what
//     is left of each column when the later ones are known) to the values that
//     make up for the errors so far, and the codes follow one by one: see
//     curvature.
//  2. Sweeps of coordinate descent over the same objective: each group's scale
//     and bias are solved for anew with all else fixed, then each code moves
//     to its best place.
//
// Every step of 2 lowers the error. Without a Gram matrix it is lsq.
type gptq struct {
	format plane.Format
	c      *curvature
	starts []float64
}

// sweeps is how often all groups are refined. A third gains under 1 %.
const sweeps = 2

// passes is how often a group's codes are gone through in a sweep.
const passes = 2

// gptqDamping is added to the diagonal of the Gram matrix, in units of its
// mean. The value is that of Frantar et al. 2022.
const gptqDamping = 0.01

// lookupDamping is the same for a matrix whose rows are also looked up as they
// are, so that their own error counts as much as that of products.
const lookupDamping = 1

func newGPTQ(f plane.Format, c *curvature) *gptq {
	return &gptq{format: f, c: c, starts: starts(f.Bits)}
}

// gptqRows is what is known of a block of rows while it is fitted; columns are
// in the order of the curvature.
type gptqRows struct {
	n, cols, group int
	format         plane.Format
	top            float32
	x              []float32 // [n][cols] the values
	v              []float32 // [n][cols] what their codes aim at; later the gradient e*H
	e              []float32 // [n][cols] x - coded
	codes          []uint8   // [n][cols]
	lines          []line16  // [n][cols/group]
	q, qh, delta   []float32 // [n][group]
	lsq            lsqGroup
}

// line16 is a stored scale and bias.
type line16 struct {
	scale, bias uint16
	s, b        float32
}

// Fit implements Fitter.
func (q *gptq) Fit(dst plane.Matrix, w []float32) error {
	g := q.load(w)
	for lo := 0; lo < g.cols; lo += g.group {
		for r := range g.n {
			if err := q.codeGroup(g, r, lo); err != nil {
				return err
			}
		}
		hi := lo + g.group
		q.c.gemm(g.v[hi:], g.cols, g.e[lo:], g.cols, q.c.u[lo*g.cols+hi:], g.cols, g.n, g.cols-hi, g.group)
	}
	clear(g.v)
	q.c.gemm(g.v, g.cols, g.e, g.cols, q.c.h, g.cols, g.n, g.cols, g.cols)
	for range sweeps {
		for lo := 0; lo < g.cols; lo += g.group {
			q.refine(g, lo)
		}
	}
	q.store(dst, g)
	return nil
}

func (q *gptq) load(w []float32) *gptqRows {
	cols, group := q.c.cols, q.format.Group
	n := len(w) / cols
	g := &gptqRows{
		n: n, cols: cols, group: group, format: q.format, top: float32(int(1)<<q.format.Bits - 1),
		x: make([]float32, len(w)), v: make([]float32, len(w)), e: make([]float32, len(w)),
		codes: make([]uint8, len(w)), lines: make([]line16, n*cols/group),
		q: make([]float32, n*group), qh: make([]float32, n*group), delta: make([]float32, n*group),
	}
	for r := range n {
		row := w[r*cols:][:cols]
		for k, c := range q.c.order {
			g.x[r*cols+k] = row[c]
		}
	}
	copy(g.v, g.x)
	g.lsq.n, g.lsq.top, g.lsq.format = group, int32(g.top), q.format
	return g
}

// codeGroup fits the line of one group of a row and chooses its codes, each
// aiming at what makes up for the errors before it.
func (q *gptq) codeGroup(g *gptqRows, r, lo int) error {
	at := r*g.cols + lo
	x, v, e, codes := g.x[at:][:g.group], g.v[at:][:g.group], g.e[at:][:g.group], g.codes[at:][:g.group]
	for i, d := range q.c.d[lo:][:g.group] {
		g.lsq.h[i] = float64(d)
	}
	l, ok := g.fit(codes, v, q.starts)
	if !ok {
		// Making up for others' errors went beyond the scale type's range.
		if l, ok = g.fit(codes, x, q.starts); !ok {
			err := tooLarge(g.format.Scale, r, 0, x)
			err.Col = q.c.order[lo+err.Col]
			return err
		}
		copy(v, x)
	}
	g.lines[at/g.group] = l
	for k := range v {
		c := l.code(v[k], g.top)
		codes[k] = uint8(c)
		err := x[k] - (float32(l.s*c) + l.b)
		e[k] = err
		later, u := v[k+1:], q.c.u[(lo+k)*g.cols+lo+k+1:]
		u = u[:len(later)]
		for m := range later {
			later[m] += float32(err * u[m])
		}
	}
	return nil
}

// fit fits a line to the values of a group; ok is false if it is not finite.
func (g *gptqRows) fit(codes []uint8, w []float32, starts []float64) (l line16, ok bool) {
	for _, x := range w {
		if !finite(x) {
			return l, false
		}
	}
	scale, bias := g.lsq.fit(codes, w, starts)
	l = newLine16(g.format.Scale, scale, bias)
	return l, l.finite(g.top)
}

func newLine16(f plane.Float, scale, bias uint16) line16 {
	return line16{scale, bias, f.Value(scale), f.Value(bias)}
}

func (l line16) finite(top float32) bool {
	return finite(l.s) && finite(l.b) && finite(float32(l.s*top)+l.b)
}

// code is the code nearest to x.
func (l line16) code(x, top float32) float32 {
	if l.s == 0 {
		return 0
	}
	return rint(min(max((x-l.b)/l.s, 0), top))
}

// refine solves for the line of one group of every row, then for its codes,
// and brings the gradient up to date.
func (q *gptq) refine(g *gptqRows, lo int) {
	cols, group, h := g.cols, g.group, q.c.h[lo*g.cols:]
	for r := range g.n {
		for i, c := range g.codes[r*cols+lo:][:group] {
			g.q[r*group+i] = float32(c)
		}
	}
	clear(g.qh)
	q.c.gemm(g.qh, group, g.q, group, h[lo:], cols, g.n, group, group)
	var ones [maxGroup]float32 // column sums of the group's block of H
	for i := range group {
		for j, v := range h[i*cols+lo:][:group] {
			ones[j] += v
		}
	}
	for r := range g.n {
		at := r*cols + lo
		e, delta := g.e[at:][:group], g.delta[r*group:][:group]
		for i, v := range e {
			delta[i] = -v
		}
		q.refineLine(g, r, lo, ones[:group])
		for range passes {
			if !q.refineCodes(g, r, lo) {
				break
			}
		}
		for i, v := range e {
			delta[i] += v
		}
	}
	// The group's own part of the gradient is up to date.
	hi := lo + group
	q.c.gemm(g.v, cols, g.delta, group, h, cols, g.n, lo, group)
	q.c.gemm(g.v[hi:], cols, g.delta, group, h[hi:], cols, g.n, cols-hi, group)
}

// refineLine moves scale and bias of a group to where the error of the whole
// row is least, in the numbers that can be stored.
func (q *gptq) refineLine(g *gptqRows, r, lo int, ones []float32) {
	at := r*g.cols + lo
	grad, e := g.v[at:][:g.group], g.e[at:][:g.group]
	codes, qh := g.q[r*g.group:][:g.group], g.qh[r*g.group:][:g.group]
	// With the scale changed by a and the bias by b the error changes by
	// a^2*qq + 2*a*b*q1 + b^2*b11 - 2*a*gq - 2*b*g1.
	var qq, q1, b11, gq, g1 float64
	for i, c := range codes {
		c, gr := float64(c), float64(grad[i])
		qq += float64(c * float64(qh[i]))
		q1 += float64(c * float64(ones[i]))
		b11 += float64(ones[i])
		gq += float64(c * gr)
		g1 += gr
	}
	det := float64(qq*b11) - float64(q1*q1)
	if !(det > 1e-6*qq*b11) {
		return // all codes alike
	}
	l := &g.lines[at/g.group]
	f := g.format.Scale
	best, bestGain := *l, 0.0
	wanted := float64(l.s) + (float64(gq*b11)-float64(g1*q1))/det
	for _, scale := range neighbours(f, wanted) {
		a := float64(f.Value(scale)) - float64(l.s)
		bias := f.Bits(float32(float64(l.b) + (g1-float64(a*q1))/b11))
		b := float64(f.Value(bias)) - float64(l.b)
		gain := 2*(float64(a*gq)+float64(b*g1)) - float64(a*a*qq) - float64(2*a*b*q1) - float64(b*b*b11)
		c := newLine16(f, scale, bias)
		if gain > bestGain && c.finite(g.top) && c.s != 0 {
			best, bestGain = c, gain
		}
	}
	if bestGain == 0 {
		return
	}
	a, b := best.s-l.s, best.b-l.b
	*l = best
	x := g.x[at:][:g.group]
	for i, c := range codes {
		e[i] = x[i] - (float32(best.s*c) + best.b)
		grad[i] -= float32(a*qh[i]) + float32(b*ones[i])
	}
}

// neighbours are the two numbers of a type next to x.
func neighbours(f plane.Float, x float64) [2]uint16 {
	b := f.Bits(float32(x))
	other := b + 1
	if math.Abs(float64(f.Value(b))) > math.Abs(x) && b&0x7fff != 0 {
		other = b - 1
	}
	return [2]uint16{b, other}
}

// refineCodes moves each code of a group to where the error of the whole row is
// least, and reports whether any moved.
func (q *gptq) refineCodes(g *gptqRows, r, lo int) (moved bool) {
	at := r*g.cols + lo
	x, grad, e, codes := g.x[at:][:g.group], g.v[at:][:g.group], g.e[at:][:g.group], g.codes[at:][:g.group]
	l := g.lines[at/g.group]
	if l.s == 0 {
		return false
	}
	for k := range codes {
		if !finite(grad[k]) {
			continue
		}
		h := q.c.h[(lo+k)*g.cols+lo:][:g.group]
		old := float32(l.s*float32(codes[k])) + l.b
		c := l.code(old+grad[k]/h[k], g.top)
		if uint8(c) == codes[k] {
			continue
		}
		codes[k] = uint8(c)
		moved = true
		err := x[k] - (float32(l.s*c) + l.b)
		d := err - e[k]
		e[k] = err
		for m, v := range h {
			grad[m] += float32(d * v)
		}
	}
	return moved
}

// store writes codes and lines in the matrix's own order.
func (q *gptq) store(dst plane.Matrix, g *gptqRows) {
	bits, codes := g.format.Bits, make([]uint8, g.cols)
	rowBytes, groups := g.cols*bits/8, g.cols/g.group
	for r := range g.n {
		for k, c := range q.c.order {
			codes[c] = g.codes[r*g.cols+k]
		}
		plane.Pack(dst.Data[r*rowBytes:], codes, bits)
		for i, l := range g.lines[r*groups:][:groups] {
			at := 2 * (r*groups + q.c.order[i*g.group]/g.group)
			binary.LittleEndian.PutUint16(dst.Scales[at:], l.scale)
			binary.LittleEndian.PutUint16(dst.Biases[at:], l.bias)
		}
	}
}

// sortDescending sorts indices by their energy, equal ones by themselves.
func sortDescending(indices []int, energy []float64) {
	slices.SortFunc(indices, func(a, b int) int {
		return cmp.Or(cmp.Compare(energy[b], energy[a]), cmp.Compare(a, b))
	})
}
