package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"substrate/pkg/plane"
)

// exact are the values of a matrix of one group in float64, where the sum of
// scale*code and bias is not rounded.
func exact(m plane.Matrix) []float64 {
	codes := make([]uint8, m.Cols)
	plane.Unpack(codes, m.Data, m.Format.Bits)
	scale := float64(m.Format.Scale.Value(binary.LittleEndian.Uint16(m.Scales)))
	bias := float64(m.Format.Scale.Value(binary.LittleEndian.Uint16(m.Biases)))
	values := make([]float64, m.Cols)
	for i, q := range codes {
		values[i] = scale*float64(q) + bias
	}
	return values
}

// fitBoth codes w, one group, with lsq and with minmax, and returns lsq's
// values and both weighted squared errors; ok is false if the values are too
// large for one.
func fitBoth(t *testing.T, w, h []float32, f plane.Format) (values []float64, lsqError, minMaxError float64, ok bool) {
	t.Helper()
	l := newLSQ(f, h)
	squared := func(values []float64) float64 {
		var sum float64
		for i, v := range values {
			weight := 1.0
			if l.h != nil {
				weight = l.h[i]
			}
			sum += weight * (v - float64(w[i])) * (v - float64(w[i]))
		}
		return sum
	}
	m, control := newMatrix(1, len(w), f), newMatrix(1, len(w), f)
	if l.Fit(m, w) != nil || (minMax{}).Fit(control, w) != nil {
		return nil, 0, 0, false
	}
	stored := make([]float32, len(w))
	m.Dequantize(stored)
	for i, v := range stored {
		if !finite(v) {
			t.Fatalf("value %d, %g, became %g", i, w[i], v)
		}
	}
	return exact(m), squared(exact(m)), squared(exact(control)), true
}

// lsq is never worse than minmax by its own measure, whatever the values.
func FuzzLSQ(f *testing.F) {
	group := func(draw func(i int) float32) []byte {
		b := make([]byte, 0, 256)
		for i := range 32 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(draw(i)))
		}
		return b
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, draw := range []func(int) float32{
		func(int) float32 { return 0 },
		func(int) float32 { return -0.3 },
		func(i int) float32 { return float32(i&1) * 1e4 },
		func(i int) float32 { return float32(rng.NormFloat64()) },
		func(i int) float32 { return float32(rng.NormFloat64()) * 1e-40 },
		func(i int) float32 { return float32(rng.NormFloat64()) * 1e30 },
		func(i int) float32 { return 1 + float32(i)*1e-7 },
		func(i int) float32 { return float32(math.Exp(float64(i))) },
	} {
		for bits := range uint8(6) {
			f.Add(group(draw), bits, false, uint32(7))
			f.Add(group(draw), bits, true, uint32(0))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, bits uint8, half bool, seed uint32) {
		format := plane.Format{Bits: []int{2, 3, 4, 5, 6, 8}[bits%6], Group: 32}
		if half {
			format.Scale = plane.F16
		}
		w := make([]float32, 32)
		for i := range w {
			if len(b) >= 4*i+4 {
				w[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			}
			if !finite(w[i]) {
				return
			}
		}
		var h []float32
		if seed != 0 {
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			h = sample(32, func(*rand.Rand) float32 { return float32(rng.ExpFloat64()) })
		}
		var largest float64
		for _, v := range w {
			largest = max(largest, math.Abs(float64(v)))
		}
		slack := 100 * math.Pow(largest*0x1p-50, 2) // what float64 cannot tell apart
		_, got, control, ok := fitBoth(t, w, h, format)
		if ok && got > control*(1+1e-9)+slack {
			t.Errorf("%d bits, %v scales: lsq leaves %g, minmax %g", format.Bits, format.Scale, got, control)
		}
	})
}

// Groups that need no codes are met as well as two 16-bit numbers can.
func TestConstantGroups(t *testing.T) {
	for _, scale := range []plane.Float{plane.BF16, plane.F16} {
		for _, v := range []float32{0, 1, -0.3, 1e-3, 123.456, 6e4} {
			w := make([]float32, 64)
			for i := range w {
				w[i] = v
			}
			got, _, _, ok := fitBoth(t, w, nil, plane.Format{Bits: 2, Group: 64, Scale: scale})
			if !ok {
				t.Fatalf("%g does not fit", v)
			}
			for i, x := range got {
				if math.Abs(x-float64(v)) > math.Abs(float64(v))/(1<<15) {
					t.Errorf("%v scales: value %d, %g, became %g", scale, i, v, x)
				}
			}
		}
	}
}

// Second moments move the error to inputs that matter little.
func TestMomentsMatter(t *testing.T) {
	const rows, cols = 64, 256
	w := sample(rows*cols, gauss)
	h := make([]float32, cols)
	for i := range h {
		h[i] = 1
		if i%8 == 0 {
			h[i] = 100
		}
	}
	f := plane.Format{Bits: 3, Group: 64}
	with, without := newMatrix(rows, cols, f), newMatrix(rows, cols, f)
	if err := newLSQ(f, h).Fit(with, w); err != nil {
		t.Fatal(err)
	}
	if err := newLSQ(f, nil).Fit(without, w); err != nil {
		t.Fatal(err)
	}
	a, b := weightedError(with, w, h), weightedError(without, w, h)
	t.Logf("weighted error %g with moments, %g without", a, b)
	if a > 0.8*b {
		t.Errorf("weighted error %g with moments, %g without: want a fifth less", a, b)
	}
	if a, b := weightedError(with, w, nil), weightedError(without, w, nil); a < b {
		t.Errorf("error %g with moments, %g without: the latter is the fit to the plain error", a, b)
	}
}

// Inputs that calibration never saw, or whose moments are all zero, do not
// divide by zero.
func TestDeadInputs(t *testing.T) {
	const cols = 128
	w := sample(2*cols, gauss)
	f := plane.Format{Bits: 4, Group: 64}
	for name, h := range map[string][]float32{
		"all dead": make([]float32, cols), "half dead": append(make([]float32, 64), sample(64, func(*rand.Rand) float32 { return 1 })...),
	} {
		m := newMatrix(2, cols, f)
		if err := newLSQ(f, h).Fit(m, w); err != nil {
			t.Fatal(err)
		}
		if e := weightedError(m, w, nil); !(e < 0.01) {
			t.Errorf("%s: relative squared error %g", name, e)
		}
	}
}
