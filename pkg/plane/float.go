package plane

import (
	"encoding/binary"
	"math"
)

// Bits rounds x to the type, to nearest, ties to even. What is beyond the
// type's range becomes an infinity.
func (f Float) Bits(x float32) uint16 {
	if f == F16 {
		return f16Bits(x)
	}
	return bf16Bits(x)
}

// Value is the number that b stands for.
func (f Float) Value(b uint16) float32 {
	if f == F16 {
		return f16Value(b)
	}
	return math.Float32frombits(uint32(b) << 16)
}

// Round is the number of the type nearest to x.
func (f Float) Round(x float32) float32 { return f.Value(f.Bits(x)) }

// Decode reads len(dst) little-endian numbers from src.
func (f Float) Decode(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	if f == F16 {
		for i := range dst {
			dst[i] = f16Value(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// Encode writes src, rounded, as little-endian numbers to dst.
func (f Float) Encode(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], f.Bits(x))
	}
}

func bf16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 { // NaN: keep it one
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func f16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00
	case b >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case b >= 0x38800000: // normal: at least 2^-14
		b -= 0x38000000 // the exponents' biases, 127 and 15
		return sign | uint16((b+0xfff+b>>13&1)>>13)
	}
	// Subnormal: units of 2^-24. Adding 0.5, whose last bit is 2^-24, rounds
	// to them.
	return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
}

func f16Value(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	b := uint32(h & 0x7fff)
	switch {
	case b >= 0x7c00: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | (b&0x3ff)<<13)
	case b >= 0x400:
		return math.Float32frombits(sign | (b<<13 + 0x38000000))
	}
	x := float32(b) * (1.0 / (1 << 24))
	return math.Float32frombits(sign | math.Float32bits(x))
}
