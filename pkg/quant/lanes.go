package quant

import (
	"encoding/binary"
	"math"

	"substrate/pkg/plane"
)

// lanes is how many groups are fitted at once where the processor can: the
// same columns of as many rows. Each lane does the same arithmetic in the same
// order as lsqGroup, so the bits are the same too.
const lanes = 8

type (
	laneValues [maxGroup][lanes]float64
	laneCodes  [maxGroup][lanes]uint8
)

// lsqLanes is lsqGroup for as many groups as there are lanes.
type lsqLanes struct {
	format plane.Format
	n      int
	top    int32
	h      []float64 // [n]
	sumH   float64

	x       laneValues
	codes   [maxCandidates]laneCodes
	offsets [lanes]int32 // of the lanes' rows, in bytes
	lo, hi  [lanes]float32
	origin  [lanes]float64
	totals  [lanes]totals
	best    [lanes]line
}

// fitLanes is Fit in lanes. It is false where some scale cannot be stored:
// what it wrote then means nothing.
func (l *lsq) fitLanes(dst plane.Matrix, w []float32) bool {
	g := &lsqLanes{format: l.format, n: l.format.Group, top: int32(1)<<l.format.Bits - 1}
	ones := make([]float64, g.n)
	for i := range ones {
		ones[i] = 1
	}
	for row := 0; row < dst.Rows; row += lanes {
		for i := range g.offsets {
			g.offsets[i] = int32(4 * dst.Cols * min(i, dst.Rows-1-row)) // lanes too many do the last row again
		}
		for col := 0; col < dst.Cols; col += g.n {
			g.h = ones
			if l.h != nil {
				g.h = l.h[col : col+g.n]
			}
			g.fit(&w[row*dst.Cols+col], l.starts)
			if !g.store(dst, row, col) {
				return false
			}
		}
	}
	return true
}

// fit finds the best line of each lane.
func (g *lsqLanes) fit(w *float32, starts []float64) {
	g.load(w)
	var start [lanes]line
	for i := range g.best {
		g.best[i] = line{err: math.Inf(1)}
	}
	for _, clip := range starts {
		for i := range start {
			lo, hi := float64(g.lo[i])-g.origin[i], float64(g.hi[i])-g.origin[i]
			start[i] = startLine(lo, hi, g.totals[i].mean(), clip, g.top)
		}
		s := g.code(&start)
		for i := range s {
			if l := g.totals[i].regress(s[i]); l.err < g.best[i].err {
				g.best[i] = l
			}
		}
	}
	var done [lanes]bool
	for range refinements {
		s := g.code(&g.best)
		left := 0
		for i := range s {
			if done[i] {
				continue
			}
			l := g.totals[i].regress(s[i])
			if !(l.err < g.best[i].err) {
				done[i] = true
				continue
			}
			done[i] = g.best[i].err-l.err < enough*l.err
			g.best[i] = l
			if !done[i] {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}

func (g *lsqLanes) load(w *float32) {
	var sum, hx, hxx [lanes]float64
	loadLanes(&g.x, w, &g.offsets, g.n, &g.lo, &g.hi, &sum)
	for i := range sum {
		g.origin[i] = sum[i] / float64(g.n)
	}
	centreLanes(&g.x, &g.h[0], g.n, &g.origin, &hx, &hxx)
	g.sumH = 0
	for _, h := range g.h {
		g.sumH += h
	}
	for i := range g.totals {
		g.totals[i] = totals{g.sumH, hx[i], hxx[i]}
	}
}

func (g *lsqLanes) code(l *[lanes]line) (s [lanes]sums) {
	var inv, shift, q, qq, qx [lanes]float64
	for i := range l {
		inv[i] = 1 / l[i].scale
		shift[i] = 0.5 - float64(l[i].bias*inv[i])
	}
	codeLanes(&g.x, &g.h[0], g.n, g.top, &inv, &shift, &q, &qq, &qx)
	for i := range s {
		s[i] = sums{q[i], qq[i], qx[i]}
	}
	return s
}

// store chooses scales, biases and codes and writes those of the rows that
// there are.
func (g *lsqLanes) store(dst plane.Matrix, row, col int) bool {
	var candidates [lanes][maxCandidates]candidate
	var counts [lanes]int
	for i := range candidates {
		candidates[i], counts[i] = roundings(g.format, span{g.lo[i], g.hi[i]}, g.best[i], g.origin[i])
	}
	var chosen [lanes]int
	var least [lanes]float64
	for i := range least {
		least[i] = math.Inf(1)
	}
	f := g.format.Scale
	for n := range maxCandidates {
		var inv, shift, scale, bias, err [lanes]float64
		for i := range scale {
			c := candidates[i][n] // of a lane that has fewer: not looked at
			scale[i], bias[i] = float64(f.Value(c.scale)), float64(f.Value(c.bias))-g.origin[i]
			inv[i] = 1 / scale[i]
			shift[i] = 0.5 - float64(bias[i]*inv[i])
		}
		chooseLanes(&g.x, &g.h[0], g.n, g.top, &inv, &shift, &scale, &bias, &g.codes[n], &err)
		for i := range err {
			if n < counts[i] && err[i] < least[i] {
				least[i], chosen[i] = err[i], n
			}
		}
	}
	var codes [maxGroup]uint8
	for i := range min(lanes, dst.Rows-row) {
		c, lane := candidates[i][chosen[i]], &g.codes[chosen[i]]
		for k := range g.n {
			codes[k] = lane[k][i]
		}
		if g.lo[i] == g.hi[i] {
			c.scale, c.bias = constantGroup(codes[:g.n], f, g.lo[i])
		}
		if !storable(g.format, c) {
			return false
		}
		at := ((row+i)*dst.Cols + col) / g.n
		plane.Pack(dst.Data[at*g.n*g.format.Bits/8:], codes[:g.n], g.format.Bits)
		binary.LittleEndian.PutUint16(dst.Scales[2*at:], c.scale)
		binary.LittleEndian.PutUint16(dst.Biases[2*at:], c.bias)
	}
	return true
}

// storable reports whether all values of a group are finite.
func storable(f plane.Format, c candidate) bool {
	s, b := f.Scale.Value(c.scale), f.Scale.Value(c.bias)
	return finite(s) && finite(b) && finite(float32(s*float32(int(1)<<f.Bits-1))+b)
}
