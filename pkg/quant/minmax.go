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
	bins := float32(int(1)<<f.Bits - 1)
	round := f.Scale.Round
	lo, hi := round(w[0]), round(w[0])
	for _, x := range w[1:] {
		lo, hi = min(lo, round(x)), max(hi, round(x))
	}
	// The end farther from zero is met exactly, and zero is a code.
	scale := max((hi-lo)/bins, 1e-7)
	edge := lo
	if !(abs(lo) > abs(hi)) {
		scale, edge = -scale, hi
	}
	var bias float32
	if q0 := rint(edge / scale); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	for i, x := range w {
		q := rint((round(x) - bias) / scale)
		codes[i] = uint8(min(max(q, 0), bins))
	}
	return f.Scale.Bits(scale), f.Scale.Bits(bias)
}

func rint(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
