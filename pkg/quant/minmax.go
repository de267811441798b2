package quant

import (
	"math"

	"substrate/pkg/plane"
)

// minMax is the rule of MLX's affine quantizer: what mx.quantize makes on the
// CPU of weights in the scale type, bit for bit. Weights are rounded to the
// scale type first, since MLX keeps scales in the weights' type; arithmetic is
// float32; scale and bias are rounded last, after the codes were chosen.
//
// Source: MLX 0.32.4, mlx/backend/cpu/quantized.cpp, quantize.
type minMax struct{}

func (minMax) Fit(dst plane.Matrix, w []float32) error {
	f := dst.Format
	return fitGroups(dst, w, func(codes []uint8, w []float32, _ int) (scale, bias uint16) {
		return minMaxGroup(codes, w, f)
	})
}

func minMaxGroup(codes []uint8, w []float32, f plane.Format) (scaleBits, biasBits uint16) {
	scale, bias := minMaxLine(bounds(w), f)
	top := float32(int(1)<<f.Bits - 1)
	for i, x := range w {
		q := rint((f.Scale.Round(x) - bias) / scale)
		codes[i] = uint8(min(max(q, 0), top))
	}
	return f.Scale.Bits(scale), f.Scale.Bits(bias)
}

// minMaxLine returns scale and bias of a group whose values are in r.
func minMaxLine(r span, f plane.Format) (scale, bias float32) {
	lo, hi := f.Scale.Round(r.lo), f.Scale.Round(r.hi) // rounding keeps the order
	// The end farther from zero is met exactly, and zero is a code.
	scale = max((hi-lo)/float32(int(1)<<f.Bits-1), 1e-7)
	edge := lo
	if !(abs(lo) > abs(hi)) {
		scale, edge = -scale, hi
	}
	if q0 := rint(edge / scale); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	return scale, bias
}

// span is the least and the greatest value of a group.
type span struct{ lo, hi float32 }

func bounds(w []float32) span {
	r := span{w[0], w[0]}
	for _, x := range w[1:] {
		if x < r.lo {
			r.lo = x
		}
		if x > r.hi {
			r.hi = x
		}
	}
	return r
}

func rint(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
