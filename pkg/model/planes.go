package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

// span is the bytes of a tensor in a file.
type span struct {
	file   int
	offset int64
	dtype  dtype
}

// planes is where the rest of a tensor is whose codes and scales are tensors
// of their own. A group of consecutive values has one scale, and in affine
// codes one bias: w = scale*q + bias, codes packed from the lowest bit of
// 32-bit words up (MLX's layout).
type planes struct {
	bits, group    int
	scales, biases span
}

// block is the values and bytes of a tensor's smallest readable piece.
func (t *tensorInfo) block() (values, bytes int64) {
	if t.dtype == affine {
		return int64(t.planes.group), int64(t.planes.group * t.planes.bits / 8)
	}
	return t.dtype.block()
}

// reference names a checkpoint of mostly such tensors.
func (t *tensorInfo) reference() string {
	if t.dtype == affine {
		return fmt.Sprintf(dequantizedPrefix+"MLX %d-bit, groups of %d", t.planes.bits, t.planes.group)
	}
	return t.dtype.reference()
}

// decodePlanes writes to dst the values of whole groups from value at on,
// whose codes are src.
func (m *Model) decodePlanes(dst []float32, t *tensorInfo, at int64, src []byte) error {
	p := t.planes
	groups := len(dst) / p.group
	first := at / int64(p.group)
	scales, err := m.side(p.scales, first, groups)
	if err != nil {
		return err
	}
	if t.dtype == mxfp4Planes {
		for g := range groups {
			decodeFP4(dst[g*p.group:][:p.group], src[g*p.group/2:], scales[g])
		}
		return nil
	}
	biases, err := m.side(p.biases, first, groups)
	if err != nil {
		return err
	}
	for g := range groups {
		unpackAffine(dst[g*p.group:][:p.group], src[g*p.group*p.bits/8:], p.bits, scales[g], biases[g])
	}
	return nil
}

// side reads scales or biases of groups. A scale of MXFP4 is the exponent of a
// power of two (E8M0).
func (m *Model) side(s span, first int64, n int) ([]float32, error) {
	out := make([]float32, n)
	if s.dtype == dtypeNone {
		raw := make([]byte, n)
		err := m.files[s.file].readAt(raw, s.offset+first)
		for i, e := range raw {
			out[i] = exponent8(e)
		}
		return out, err
	}
	raw := make([]byte, s.dtype.bytes(int64(n)))
	err := m.files[s.file].readAt(raw, s.offset+s.dtype.bytes(first))
	decode(s.dtype, out, raw)
	return out, err
}

// exponent8 is 2^(e-127) of OCP's E8M0; 255 is NaN.
func exponent8(e byte) float32 {
	if e == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(e)-127))
}

// decodeFP4 writes 32 values of E2M1 times a scale. The low half of a byte
// comes first.
func decodeFP4(dst []float32, src []byte, scale float32) {
	src = src[:len(dst)/2]
	for i, b := range src {
		dst[2*i] = scale * fp4(b&15)
		dst[2*i+1] = scale * fp4(b>>4)
	}
}

// fp4 is a number of OCP's E2M1: a sign, two bits of exponent, one of
// mantissa.
func fp4(code byte) float32 {
	values := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	v := values[code&7]
	if code >= 8 {
		return -v
	}
	return v
}

// unpackAffine decodes a group of codes. 32 codes of any width are whole
// words.
func unpackAffine(dst []float32, src []byte, bits int, scale, bias float32) {
	mask := uint64(1)<<bits - 1
	var word uint64
	have := 0
	for i := range dst {
		if have < bits {
			word |= uint64(binary.LittleEndian.Uint32(src)) << have
			src = src[4:]
			have += 32
		}
		dst[i] = float32(scale*float32(word&mask)) + bias
		word >>= bits
		have -= bits
	}
}
