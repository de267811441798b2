package model

import (
	"encoding/binary"
	"math"
)

// decode writes the values of src, whole blocks of type d, to dst.
func decode(d dtype, dst []float32, src []byte) {
	switch d {
	case f32:
		decodeF32(dst, src)
	case f16:
		decodeF16(dst, src)
	case bf16:
		decodeBF16(dst, src)
	case q8_0:
		decodeQ8(dst, src)
	case q4_0:
		decodeQ4(dst, src)
	case q4_1:
		decodeQ41(dst, src)
	case q5_0, q5_1:
		decodeQ5(d, dst, src)
	case q2_k:
		decodeQ2K(dst, src)
	case q3_k:
		decodeQ3K(dst, src)
	case q4_k, q5_k:
		decodeQ45K(d, dst, src)
	case q6_k:
		decodeQ6K(dst, src)
	case mxfp4:
		decodeMXFP4(dst, src)
	}
}

func decodeF32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for len(dst) >= 4 {
		v := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(v) << 16)
		dst[1] = math.Float32frombits(uint32(v) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(v>>32) << 16)
		dst[3] = math.Float32frombits(uint32(v>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func decodeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = halfToFloat(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// halfToFloat converts IEEE half precision exactly. Moving the exponent into
// float32's place leaves it 112 too low, subnormals included, which a product
// corrects. Infinity and NaN become themselves.
func halfToFloat(h uint16) float32 {
	bits := uint32(h&0x7fff) << 13
	sign := uint32(h&0x8000) << 16
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(sign | bits | 0x7f800000)
	}
	f := math.Float32frombits(bits) * 0x1p112
	return math.Float32frombits(sign | math.Float32bits(f))
}

// decodeQ8 reads ggml's block_q8_0: f16 scale, 32 signed bytes.
func decodeQ8(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 34; dst, src = dst[32:], src[34:] {
		scale := halfToFloat(binary.LittleEndian.Uint16(src))
		out, codes := dst[:32], src[2:34]
		for i, c := range codes {
			out[i] = scale * float32(int8(c))
		}
	}
}

// decodeQ4 reads ggml's block_q4_0: f16 scale, 16 bytes whose low halves are
// codes 0 to 15 and whose high halves are 16 to 31; 8 stands for 0.
func decodeQ4(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 18; dst, src = dst[32:], src[18:] {
		scale := halfToFloat(binary.LittleEndian.Uint16(src))
		low, high, codes := dst[:16], dst[16:32], src[2:18]
		for i, c := range codes {
			low[i] = scale * float32(int(c&15)-8)
			high[i] = scale * float32(int(c>>4)-8)
		}
	}
}

// decodeQ41 reads ggml's block_q4_1: f16 scale, f16 minimum, codes as in
// block_q4_0.
func decodeQ41(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 20; dst, src = dst[32:], src[20:] {
		scale := halfToFloat(binary.LittleEndian.Uint16(src))
		minimum := halfToFloat(binary.LittleEndian.Uint16(src[2:]))
		low, high, codes := dst[:16], dst[16:32], src[4:20]
		for i, c := range codes {
			low[i] = float32(scale*float32(c&15)) + minimum
			high[i] = float32(scale*float32(c>>4)) + minimum
		}
	}
}

// firstNonFinite is the index of the first NaN or infinity, -1 if there is
// none.
func firstNonFinite(x []float32) int {
	const exponent, one = 0x7f800000, 0x00800000
	var all uint32 // bit 31: some exponent is all ones, so that adding one carried
	for _, v := range x {
		all |= math.Float32bits(v)&exponent + one
	}
	if all&0x80000000 == 0 {
		return -1
	}
	for i, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return i
		}
	}
	return -1
}
