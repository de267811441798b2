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
	laneRows   [lanes][maxGroup]uint8
	laneLines  struct{ scale, bias, err, code [lanes]float64 }
	laneTotals struct{ sumH, sumHX, sumHXX [lanes]float64 }
)

// lsqLanes is lsqGroup for as many groups as there are lanes.
type lsqLanes struct {
	format plane.Format
	n      int
	top    int32
	h      []float64 // [n]

	x       laneValues
	codes   [maxCandidates]laneCodes
	rows    laneRows
	offsets [lanes]int32 // of the lanes' rows, in bytes
	lo, hi  [lanes]float32
	origin  [lanes]float64
	totals  laneTotals
	best    laneLines
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
	for i := range g.best.err {
		g.best.err[i] = math.Inf(1)
	}
	var start, l laneLines
	for _, clip := range starts {
		for i := range lanes {
			lo, hi := float64(g.lo[i])-g.origin[i], float64(g.hi[i])-g.origin[i]
			first := startLine(lo, hi, g.totals.sumHX[i]/g.totals.sumH[i], clip, g.top)
			start.scale[i], start.bias[i] = first.scale, first.bias
		}
		regressLanes(&g.x, &g.h[0], g.n, g.top, &start, &g.totals, &l)
		for i := range lanes {
			if l.err[i] < g.best.err[i] {
				g.best.set(i, &l)
			}
		}
	}
	var done [lanes]bool
	for range refinements {
		regressLanes(&g.x, &g.h[0], g.n, g.top, &g.best, &g.totals, &l)
		left := 0
		for i := range lanes {
			if done[i] {
				continue
			}
			if !(l.err[i] < g.best.err[i]) {
				done[i] = true
				continue
			}
			done[i] = g.best.err[i]-l.err[i] < enough*l.err[i]
			g.best.set(i, &l)
			if !done[i] {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}

// set takes the line of lane i from other lines.
func (l *laneLines) set(i int, from *laneLines) {
	l.scale[i], l.bias[i], l.err[i], l.code[i] = from.scale[i], from.bias[i], from.err[i], from.code[i]
}

func (g *lsqLanes) load(w *float32) {
	var sum [lanes]float64
	loadLanes(&g.x, w, &g.offsets, g.n, &g.lo, &g.hi, &sum)
	for i := range sum {
		g.origin[i] = sum[i] / float64(g.n)
	}
	centreLanes(&g.x, &g.h[0], g.n, &g.origin, &g.totals.sumHX, &g.totals.sumHXX)
	sumH := 0.0
	for _, h := range g.h {
		sumH += h
	}
	for i := range g.totals.sumH {
		g.totals.sumH[i] = sumH
	}
}

// store chooses scales, biases and codes and writes those of the rows that
// there are.
func (g *lsqLanes) store(dst plane.Matrix, row, col int) bool {
	var candidates [lanes][maxCandidates]candidate
	var counts [lanes]int
	for i := range candidates {
		candidates[i], counts[i] = roundings(g.format, span{g.lo[i], g.hi[i]}, line{scale: g.best.scale[i], bias: g.best.bias[i], code: g.best.code[i]}, g.origin[i])
	}
	var chosen [lanes]int
	var least [lanes]float64
	for i := range least {
		least[i] = math.Inf(1)
	}
	f := g.format.Scale
	for n := range maxCandidates {
		var scale, bias, err [lanes]float64
		for i := range scale {
			c := candidates[i][n] // of a lane that has fewer: not looked at
			scale[i], bias[i] = float64(f.Value(c.scale)), float64(f.Value(c.bias))-g.origin[i]
		}
		chooseLanes(&g.x, &g.h[0], g.n, g.top, &scale, &bias, &g.codes[n], &err)
		for i := range err {
			if n < counts[i] && err[i] < least[i] {
				least[i], chosen[i] = err[i], n
			}
		}
	}
	g.rows.take(&g.codes, &chosen, g.n)
	for i := range min(lanes, dst.Rows-row) {
		c, codes := candidates[i][chosen[i]], g.rows[i][:g.n]
		if g.lo[i] == g.hi[i] {
			c.scale, c.bias = constantGroup(codes, f, g.lo[i])
		}
		if !storable(g.format, c) {
			return false
		}
		at := ((row+i)*dst.Cols + col) / g.n
		plane.Pack(dst.Data[at*g.n*g.format.Bits/8:], codes, g.format.Bits)
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

// take takes the first n codes of each lane from that of the candidates which
// is chosen for it.
func (r *laneRows) take(candidates *[maxCandidates]laneCodes, chosen *[lanes]int, n int) {
	var masks [maxCandidates]uint64
	for i, c := range chosen {
		masks[c] |= 0xff << (8 * i)
	}
	word := func(k int) (w uint64) {
		for c := range candidates {
			w |= binary.LittleEndian.Uint64(candidates[c][k][:]) & masks[c]
		}
		return w
	}
	for k := 0; k < n; k += 8 {
		// 8 codes of 8 lanes are transposed as words: bytes past the diagonal
		// change places, then pairs, then fours.
		const bytes, pairs, fours = 0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff
		a0, a1 := exchange(word(k), word(k+1), 8, bytes)
		a2, a3 := exchange(word(k+2), word(k+3), 8, bytes)
		a4, a5 := exchange(word(k+4), word(k+5), 8, bytes)
		a6, a7 := exchange(word(k+6), word(k+7), 8, bytes)
		a0, a2 = exchange(a0, a2, 16, pairs)
		a1, a3 = exchange(a1, a3, 16, pairs)
		a4, a6 = exchange(a4, a6, 16, pairs)
		a5, a7 = exchange(a5, a7, 16, pairs)
		a0, a4 = exchange(a0, a4, 32, fours)
		a1, a5 = exchange(a1, a5, 32, fours)
		a2, a6 = exchange(a2, a6, 32, fours)
		a3, a7 = exchange(a3, a7, 32, fours)
		for i, w := range [lanes]uint64{a0, a1, a2, a3, a4, a5, a6, a7} {
			binary.LittleEndian.PutUint64(r[i][k:], w)
		}
	}
}

// exchange swaps the upper part of a with the lower part of b in every field
// of twice shift bits.
func exchange(a, b uint64, shift uint, mask uint64) (uint64, uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}
