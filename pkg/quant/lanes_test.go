package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/pkg/plane"
)

// laneWeights are blocks of values that a fit may meet.
var laneWeights = map[string]func(*rand.Rand, int) float32{
	"gauss":    func(rng *rand.Rand, _ int) float32 { return gauss(rng) * 0.02 },
	"student":  func(rng *rand.Rand, _ int) float32 { return student(rng) },
	"outliers": func(rng *rand.Rand, i int) float32 { return gauss(rng) * []float32{1, 1, 1e4}[min(2, i%97)] },
	"steps":    func(rng *rand.Rand, _ int) float32 { return float32(rng.IntN(3)) },
	"zeros":    func(rng *rand.Rand, i int) float32 { return gauss(rng) * float32(i/256%2) },
	"constant": func(_ *rand.Rand, i int) float32 { return float32(i/128%5) * 1.2345 },
	"denormal": func(rng *rand.Rand, _ int) float32 { return float32(rng.IntN(100)) * math.SmallestNonzeroFloat32 },
	"huge":     func(rng *rand.Rand, i int) float32 { return gauss(rng) * []float32{1, 1e37}[i/512%2] },
	"signs":    func(rng *rand.Rand, _ int) float32 { return float32(math.Copysign(0, rng.NormFloat64())) },
	"bf16":     func(rng *rand.Rand, _ int) float32 { return plane.BF16.Round(gauss(rng)) },
}

// sameInLanes fits in lanes and group by group and reports the first difference.
func sameInLanes(f plane.Format, moments []float32, rows, cols int, w []float32) error {
	one, many := newMatrix(rows, cols, f), newMatrix(rows, cols, f)
	slow, fast := newLSQ(f, moments), newLSQ(f, moments)
	slow.lanes, fast.lanes = false, true
	errOne, errMany := slow.Fit(one, w), fast.Fit(many, w)
	if fmt.Sprint(errOne) != fmt.Sprint(errMany) {
		return fmt.Errorf("error %v in lanes, %v without", errMany, errOne)
	}
	if errOne != nil {
		return nil
	}
	if !bytes.Equal(one.Scales, many.Scales) || !bytes.Equal(one.Biases, many.Biases) || !bytes.Equal(one.Data, many.Data) {
		for g := range len(w) / f.Group {
			at := func(b []byte) uint16 { return binary.LittleEndian.Uint16(b[2*g:]) }
			if at(one.Scales) != at(many.Scales) || at(one.Biases) != at(many.Biases) {
				return fmt.Errorf("group %d: scale %#x, bias %#x in lanes, %#x, %#x without", g, at(many.Scales), at(many.Biases), at(one.Scales), at(one.Biases))
			}
		}
		return fmt.Errorf("other codes in lanes")
	}
	return nil
}

// Lanes make the same bytes as one group at a time.
func TestLanes(t *testing.T) {
	if !haveLanes() {
		t.Skip("this processor has no lanes")
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for name, draw := range laneWeights {
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			for _, group := range []int{32, 64, 128} {
				rows, cols := 1+rng.IntN(20), group*(1+rng.IntN(3))
				f := plane.Format{Bits: bits, Group: group, Scale: plane.Float(rng.IntN(2))}
				w := make([]float32, rows*cols)
				for i := range w {
					w[i] = draw(rng, i)
				}
				var moments []float32
				if rng.IntN(2) == 0 {
					moments = make([]float32, cols)
					for i := range moments {
						moments[i] = float32(rng.ExpFloat64() * math.Exp2(float64(rng.IntN(20))))
					}
				}
				if err := sameInLanes(f, moments, rows, cols, w); err != nil {
					t.Errorf("%s, %d bits, groups of %d, %s, [%d, %d], moments %v: %v", name, bits, group, f.Scale, rows, cols, moments != nil, err)
				}
			}
		}
	}
}

func FuzzLanes(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, bits, rows uint8) {
		if !haveLanes() || len(b) == 0 {
			t.Skip()
		}
		format := plane.Format{Bits: []int{2, 3, 4, 5, 6, 8}[bits%6], Group: 32, Scale: plane.Float(bits / 128)}
		n := 1 + int(rows)%17
		w := make([]float32, n*32)
		for i := range w {
			at := 4 * i % len(b)
			var word [4]byte
			copy(word[:], b[at:])
			if x := math.Float32frombits(binary.LittleEndian.Uint32(word[:])); finite(x) {
				w[i] = x
			}
		}
		if err := sameInLanes(format, slices.Repeat([]float32{1, 3}, 16), n, 32, w); err != nil {
			t.Error(err)
		}
	})
}
