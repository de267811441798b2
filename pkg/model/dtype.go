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
	q8_0
	q4_0
	q4_1
)

// block is the number of values that are stored together, and their bytes.
// Sizes of the quantized types: ggml's block_q8_0, block_q4_0, block_q4_1.
func (d dtype) block() (values, bytes int64) {
	switch d {
	case f32:
		return 1, 4
	case f16, bf16:
		return 1, 2
	case q8_0:
		return 32, 2 + 32
	case q4_0:
		return 32, 2 + 16
	case q4_1:
		return 32, 4 + 16
	}
	return 1, 0
}

// bytes is the size of n values, a multiple of the block.
func (d dtype) bytes(n int64) int64 {
	values, bytes := d.block()
	return n / values * bytes
}

// String is the name used in documents.
func (d dtype) String() string {
	switch d {
	case f32:
		return "f32"
	case f16:
		return "f16"
	case bf16:
		return "bf16"
	case q8_0:
		return "q8_0"
	case q4_0:
		return "q4_0"
	case q4_1:
		return "q4_1"
	}
	return "none"
}

func (d dtype) quantized() bool { return d >= q8_0 }

// reference names what a checkpoint of mostly this type is, as the thing that
// quality is measured against.
func (d dtype) reference() string {
	if d.quantized() {
		return "dequantized " + strings.ToUpper(d.String())
	}
	return "source " + d.String()
}

// parseDType reads the name used in documents.
func parseDType(s string) (dtype, error) {
	for d := f32; d <= q4_1; d++ {
		if d.String() == s {
			return d, nil
		}
	}
	return dtypeNone, fmt.Errorf("tensor type %q: want f32, f16, bf16, q8_0, q4_0 or q4_1", s)
}
