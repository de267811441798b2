package model

import (
	"fmt"
	"strings"
)

// dtype is how a file stores the values of a tensor.
type dtype uint8

const (
	dtypeNone dtype = iota // not one that can be read as weights
	f32
	f16
	bf16
	// ggml's quantized types: blocks of values with their scales.
	q8_0
	q4_0
	q4_1
	q5_0
	q5_1
	q2_k
	q3_k
	q4_k
	q5_k
	q6_k
	mxfp4
	// Types whose codes and scales are tensors of their own: see [planes].
	mxfp4Planes
	affine
	dtypeEnd
)

// describe is the name of a type in documents, the number of values that are
// stored together, and their bytes. Sizes: ggml-common.h of llama.cpp. A type
// in planes has values and bytes of its own for every tensor.
func (d dtype) describe() (name string, values, bytes int64) {
	switch d {
	case f32:
		return "f32", 1, 4
	case f16:
		return "f16", 1, 2
	case bf16:
		return "bf16", 1, 2
	case q8_0:
		return "q8_0", 32, 2 + 32
	case q4_0:
		return "q4_0", 32, 2 + 16
	case q4_1:
		return "q4_1", 32, 4 + 16
	case q5_0:
		return "q5_0", 32, 2 + 4 + 16
	case q5_1:
		return "q5_1", 32, 4 + 4 + 16
	case q2_k:
		return "q2_k", 256, 16 + 64 + 4
	case q3_k:
		return "q3_k", 256, 32 + 64 + 12 + 2
	case q4_k:
		return "q4_k", 256, 4 + 12 + 128
	case q5_k:
		return "q5_k", 256, 4 + 12 + 32 + 128
	case q6_k:
		return "q6_k", 256, 128 + 64 + 16 + 2
	case mxfp4:
		return "mxfp4", 32, 1 + 16
	case mxfp4Planes:
		return "mxfp4", 32, 16
	case affine:
		return "affine", 1, 0
	}
	return "none", 1, 0
}

// block is the number of values that are stored together, and their bytes.
func (d dtype) block() (values, bytes int64) {
	_, values, bytes = d.describe()
	return values, bytes
}

// bytes is the size of n values, a multiple of the block.
func (d dtype) bytes(n int64) int64 {
	values, bytes := d.block()
	return n / values * bytes
}

// String is the name used in documents.
func (d dtype) String() string {
	name, _, _ := d.describe()
	return name
}

func (d dtype) quantized() bool { return d >= q8_0 }

const dequantizedPrefix = "dequantized "

// reference names a checkpoint of mostly this type, as the thing that quality
// is measured against.
func (d dtype) reference() string {
	if d.quantized() {
		return dequantizedPrefix + strings.ToUpper(d.String())
	}
	return "source " + d.String()
}

// parseDType reads the name of a type of weights that are not quantized.
func parseDType(s string) (dtype, error) {
	for d := f32; d <= bf16; d++ {
		if d.String() == s {
			return d, nil
		}
	}
	return dtypeNone, fmt.Errorf("tensor type %q: want f32, f16 or bf16", s)
}
