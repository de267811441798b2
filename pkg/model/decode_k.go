package model

import "encoding/binary"

// The K types of llama.cpp: 256 values in 8 groups of 32 or 16 of 16, with
// scales that are coded themselves. Layouts: ggml-common.h.

// decodeQ5 reads ggml's block_q5_0 and block_q5_1: an f16 scale, in q5_1 an
// f16 minimum, the fifth bits, and codes as in block_q4_0.
func decodeQ5(d dtype, dst []float32, src []byte) {
	_, size := d.block()
	for ; len(dst) >= 32 && len(src) >= int(size); dst, src = dst[32:], src[size:] {
		scale := halfToFloat(binary.LittleEndian.Uint16(src))
		rest, offset, minimum := src[2:], float32(-16), float32(0)
		if d == q5_1 {
			rest, offset, minimum = src[4:], 0, halfToFloat(binary.LittleEndian.Uint16(src[2:]))
		}
		high := binary.LittleEndian.Uint32(rest)
		for i, c := range rest[4:20] {
			low := c&15 | byte(high>>i&1)<<4
			top := c>>4 | byte(high>>(i+16)&1)<<4
			dst[i] = float32(scale*(float32(low)+offset)) + minimum
			dst[i+16] = float32(scale*(float32(top)+offset)) + minimum
		}
	}
}

// decodeQ2K reads block_q2_K: 16 bytes with a scale below and a minimum above,
// codes, f16 scale of the scales, f16 scale of the minima.
func decodeQ2K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 84; dst, src = dst[256:], src[84:] {
		d, dmin := halfToFloat(binary.LittleEndian.Uint16(src[80:])), halfToFloat(binary.LittleEndian.Uint16(src[82:]))
		for g := range 16 {
			scale, minimum := float32(d*float32(src[g]&15)), float32(dmin*float32(src[g]>>4))
			codes, shift := src[16+g/8*32+g%2*16:], g/2%4*2
			for i := range 16 {
				dst[16*g+i] = float32(scale*float32(codes[i]>>shift&3)) - minimum
			}
		}
	}
}

// decodeQ3K reads block_q3_K: third bits, codes, 16 scales of 6 bits, f16
// scale of the scales. A third bit that is not set takes 4 away.
func decodeQ3K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 110; dst, src = dst[256:], src[110:] {
		d := halfToFloat(binary.LittleEndian.Uint16(src[108:]))
		packed := src[96:108]
		for g := range 16 {
			six := packed[g%8]>>(g/8*4)&15 | packed[8+g%4]>>(g/4*2)&3<<4
			scale := float32(d * float32(int(six)-32))
			codes, third, shift := src[32+g/8*32+g%2*16:], src[g%2*16:], g/2%4*2
			for i := range 16 {
				q := int(codes[i]>>shift&3) - 4 + int(third[i]>>(g/2)&1)*4
				dst[16*g+i] = scale * float32(q)
			}
		}
	}
}

// decodeQ45K reads block_q4_K and block_q5_K: f16 scale of the scales, f16
// scale of the minima, 8 of each in 6 bits, in q5_K the fifth bits, codes.
func decodeQ45K(kind dtype, dst []float32, src []byte) {
	_, size := kind.block()
	for ; len(dst) >= 256 && len(src) >= int(size); dst, src = dst[256:], src[size:] {
		d, dmin := halfToFloat(binary.LittleEndian.Uint16(src)), halfToFloat(binary.LittleEndian.Uint16(src[2:]))
		packed, fifth, codes := src[4:16], []byte(nil), src[16:size]
		if kind == q5_k {
			fifth, codes = codes[:32], codes[32:]
		}
		for g := range 8 {
			s, m := scaleMin(packed, g)
			scale, minimum := float32(d*float32(s)), float32(dmin*float32(m))
			own, shift := codes[g/2*32:][:32], g%2*4
			for i, c := range own {
				q := c >> shift & 15
				if fifth != nil {
					q |= fifth[i] >> g & 1 << 4
				}
				dst[32*g+i] = float32(scale*float32(q)) - minimum
			}
		}
	}
}

// scaleMin unpacks scale and minimum of a group: the first four have a byte
// each, whose upper two bits belong to the last four.
func scaleMin(packed []byte, g int) (scale, minimum byte) {
	if g < 4 {
		return packed[g] & 63, packed[4+g] & 63
	}
	return packed[4+g]&15 | packed[g-4]>>6<<4, packed[4+g]>>4 | packed[g]>>6<<4
}

// decodeQ6K reads block_q6_K: lower four bits, upper two, 16 signed scales,
// f16 scale of the scales; 32 stands for 0.
func decodeQ6K(dst []float32, src []byte) {
	for ; len(dst) >= 256 && len(src) >= 210; dst, src = dst[256:], src[210:] {
		d := halfToFloat(binary.LittleEndian.Uint16(src[208:]))
		for g := range 16 {
			scale := float32(d * float32(int8(src[192+g])))
			// Half a block has 64 bytes of lower and 32 of upper bits.
			half, in := g/8, g%8
			low, lowShift := src[64*half+in%4*16:], in/4*4
			high, highShift := src[128+32*half+in%2*16:], in/2*2
			for i := range 16 {
				q := int(low[i]>>lowShift&15|high[i]>>highShift&3<<4) - 32
				dst[16*g+i] = scale * float32(q)
			}
		}
	}
}

// decodeMXFP4 reads ggml's block_mxfp4: an exponent, then codes as in
// block_q4_0.
func decodeMXFP4(dst []float32, src []byte) {
	for ; len(dst) >= 32 && len(src) >= 17; dst, src = dst[32:], src[17:] {
		scale := exponent8(src[0])
		for i, c := range src[1:17] {
			dst[i] = scale * fp4(c&15)
			dst[i+16] = scale * fp4(c>>4)
		}
	}
}
