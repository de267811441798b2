package plane

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Each 16-bit number comes back from its value, so Bits inverts Value.
func TestFloatRoundTrip(t *testing.T) {
	for _, f := range []Float{BF16, F16} {
		for b := range 1 << 16 {
			v := f.Value(uint16(b))
			got := f.Bits(v)
			if v != v {
				if w := f.Value(got); w == w {
					t.Fatalf("%v %#04x: NaN became %v", f, b, w)
				}
				continue
			}
			if got != uint16(b) {
				t.Fatalf("%v %#04x: value %v gives %#04x", f, b, v, got)
			}
		}
	}
}

// The nearest number wins, and of two equally near ones the even one.
func TestFloatRounding(t *testing.T) {
	for _, f := range []Float{BF16, F16} {
		largest := uint16(0x7f7f)
		if f == F16 {
			largest = 0x7bff
		}
		for b := uint16(0); b < largest; b++ {
			lo, hi := float64(f.Value(b)), float64(f.Value(b+1))
			mid := (lo + hi) / 2 // exact in float32 too: both types have bits to spare
			even := b + b&1
			if got := f.Bits(float32(mid)); got != even && float64(float32(mid)) == mid {
				t.Fatalf("%v: midpoint of %#04x and the next: got %#04x", f, b, got)
			}
			if got := f.Bits(math.Nextafter32(float32(lo), float32(hi))); got != b {
				t.Fatalf("%v: just above %#04x: got %#04x", f, b, got)
			}
			if got := f.Bits(-math.Nextafter32(float32(hi), float32(lo))); got != 0x8000|(b+1) {
				t.Fatalf("%v: just below -%#04x: got %#04x", f, b+1, got)
			}
		}
		if got := f.Round(math.MaxFloat32); !math.IsInf(float64(got), 1) {
			t.Errorf("%v: largest float32 rounds to %v, want +Inf", f, got)
		}
	}
	if got := F16.Round(65519); got != 65504 {
		t.Errorf("f16 of 65519: got %v, want 65504", got)
	}
	if got := F16.Round(65520); !math.IsInf(float64(got), 1) {
		t.Errorf("f16 of 65520: got %v, want +Inf", got)
	}
}

// Pack against the definition: bit j of code i is bit i*bits+j of the stream.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		codes := make([]uint8, 64)
		for i := range codes {
			codes[i] = uint8(rng.IntN(1 << bits))
		}
		want := make([]byte, len(codes)*bits/8)
		for i, c := range codes {
			for j := range bits {
				at := i*bits + j
				want[at/8] |= c >> j & 1 << (at % 8)
			}
		}
		got := make([]byte, len(want))
		Pack(got, codes, bits)
		if !slices.Equal(got, want) {
			t.Errorf("%d bits: packed %x, want %x", bits, got, want)
		}
		back := make([]uint8, len(codes))
		Unpack(back, got, bits)
		if !slices.Equal(back, codes) {
			t.Errorf("%d bits: unpacked %v, want %v", bits, back, codes)
		}
	}
}
