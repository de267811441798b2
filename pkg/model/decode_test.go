package model

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/internal/jsonio"
)

// slowHalf converts half precision by its definition.
func slowHalf(h uint16) float32 {
	exponent, mantissa := int(h>>10&31), float64(h&1023)
	x := math.Ldexp(1+mantissa/1024, exponent-15)
	switch {
	case exponent == 0:
		x = math.Ldexp(mantissa/1024, -14)
	case exponent == 31 && mantissa != 0:
		return float32(math.NaN())
	case exponent == 31:
		x = math.Inf(1)
	}
	if h>>15 == 1 {
		x = -x
	}
	return float32(x)
}

// slowDecode is decode by the definition of the types, a value at a time.
func slowDecode(d dtype, src []byte, i int) float32 {
	values, bytes := d.block()
	at := src[i/int(values)*int(bytes):]
	i %= int(values)
	half := func(at []byte) float32 { return slowHalf(binary.LittleEndian.Uint16(at)) }
	nibble := func(codes []byte) float32 {
		if i < 16 {
			return float32(codes[i] % 16)
		}
		return float32(codes[i-16] / 16)
	}
	switch d {
	case f32:
		return math.Float32frombits(binary.LittleEndian.Uint32(at))
	case f16:
		return half(at)
	case bf16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(at)) << 16)
	case q8_0:
		return half(at) * float32(int8(at[2+i]))
	case q4_0:
		return half(at) * (nibble(at[2:]) - 8)
	}
	product := half(at) * nibble(at[4:])
	return product + half(at[2:])
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		got, want := halfToFloat(uint16(h)), slowHalf(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("half %#04x is %v, want %v", h, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for d := f32; d <= q4_1; d++ {
		values, bytes := d.block()
		for _, blocks := range []int{0, 1, 2, 3, 4, 5, 7, 33} {
			src := make([]byte, blocks*int(bytes))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			got, want := make([]float32, blocks*int(values)), make([]float32, blocks*int(values))
			decode(d, got, src)
			for i := range want {
				want[i] = slowDecode(d, src, i)
			}
			same := slices.EqualFunc(got, want, func(a, b float32) bool {
				return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
			})
			if !same {
				t.Errorf("%s, %d blocks: got %v, want %v", d, blocks, got, want)
			}
		}
	}
}

// TestDecodeBlocks compares random blocks of every quantized type with what
// the Python package gguf makes of them (scripts/make_gguf_goldens.py).
func TestDecodeBlocks(t *testing.T) {
	var golden map[string]struct {
		Blocks string   `json:"blocks"` // hex
		Values []uint32 `json:"values"` // bits of float32
	}
	text := read(t, "testdata/blocks.json")
	if err := jsonio.UnmarshalLoose("blocks.json", text, &golden); err != nil {
		t.Fatal(err)
	}
	for d := q8_0; d <= mxfp4; d++ {
		g := golden[d.String()]
		src, err := hex.DecodeString(g.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		values, bytes := d.block()
		if len(src) == 0 || int64(len(src))/bytes*values != int64(len(g.Values)) {
			t.Fatalf("%s: %d bytes of blocks for %d values", d, len(src), len(g.Values))
		}
		got := make([]float32, len(g.Values))
		decode(d, got, src)
		for i, want := range g.Values {
			if math.Float32bits(got[i]) != want && !(got[i] == 0 && want<<1 == 0) {
				t.Fatalf("%s: value %d is %v, want %v", d, i, got[i], math.Float32frombits(want))
			}
		}
	}
}

func TestNonFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, test := range []struct {
		x    []float32
		want int
	}{
		{nil, -1},
		{[]float32{0, 1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}, -1},
		{[]float32{1, nan}, 1},
		{[]float32{inf, nan}, 0},
	} {
		if got := firstNonFinite(test.x); got != test.want {
			t.Errorf("%v: %d, want %d", test.x, got, test.want)
		}
	}
}

func TestPermute(t *testing.T) {
	// llama.cpp's order of two heads of 6: dimension i beside i+3.
	file := []int{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}
	for at, row := range file {
		if got := permute(row, 6); got != at {
			t.Errorf("row %d is row %d of the file, want %d", row, got, at)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for d := f32; d <= mxfp4; d++ {
		b.Run(d.String(), func(b *testing.B) {
			src := make([]byte, chunkBytes)
			values, bytes := d.block()
			src = src[:len(src)/int(bytes)*int(bytes)]
			dst := make([]float32, len(src)/int(bytes)*int(values))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				decode(d, dst, src)
				if firstNonFinite(dst) >= 0 {
					b.Fatal("zeros are finite")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/value")
		})
	}
}
