package quant

import "golang.org/x/sys/cpu"

// haveLanes reports whether the processor has what lanes_amd64.s uses.
func haveLanes() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL }

// loadLanes takes n values of each lane, lane i's from offsets[i] bytes behind
// w on: their range and sum.
//
//go:noescape
func loadLanes(x *laneValues, w *float32, offsets *[lanes]int32, n int, lo, hi *[lanes]float32, sum *[lanes]float64)

// centreLanes makes values relative to origin and sums up h*x and h*x*x.
//
//go:noescape
func centreLanes(x *laneValues, h *float64, n int, origin, hx, hxx *[lanes]float64)

// regressLanes is lsqGroup.code and then totals.regress.
//
//go:noescape
func regressLanes(x *laneValues, h *float64, n int, top int32, l *laneLines, t *laneTotals, out *laneLines)

// chooseLanes is lsqGroup.choose.
//
//go:noescape
func chooseLanes(x *laneValues, h *float64, n int, top int32, scale, bias *[lanes]float64, codes *laneCodes, err *[lanes]float64)
