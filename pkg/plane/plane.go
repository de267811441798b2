// Package plane is the packed layout of weight codes: how a matrix of codes,
// its scales and its biases lie in bytes, and 16-bit floats.
//
// The layout is MLX's: per row a little-endian bit stream of codes, value i of
// a row at bit i*bits; scales and biases row-major [rows][cols/group] in bf16
// or f16; w = scale*q + bias.
package plane

import "fmt"

// Format says how the values of a matrix are stored.
type Format struct {
	Bits  int   // 2, 3, 4, 5, 6, 8: codes; 16: dense in Scale; 32: dense float32
	Group int   // inputs that share a scale and bias; 0 where dense
	Scale Float // type of scales and biases, or of dense 16-bit values
}

// Float is a 16-bit float type.
type Float uint8

// The 16-bit float types.
const (
	BF16 Float = iota
	F16
)

// String is the name used in documents.
func (f Float) String() string {
	if f == F16 {
		return "f16"
	}
	return "bf16"
}

// ParseFloat reads the name used in documents.
func ParseFloat(s string) (Float, error) {
	switch s {
	case "bf16":
		return BF16, nil
	case "f16":
		return F16, nil
	}
	return 0, fmt.Errorf("16-bit float type %q: want bf16 or f16", s)
}

// Coded reports whether the format has codes with scales.
func (f Format) Coded() bool { return f.Bits < 16 }

// DataBytes is the size of codes or dense values of a [rows, cols] matrix.
func (f Format) DataBytes(rows, cols int) int64 {
	return int64(rows) * int64(cols) * int64(f.Bits) / 8
}

// ScaleBytes is the size of the scales, and again of the biases.
func (f Format) ScaleBytes(rows, cols int) int64 {
	if !f.Coded() {
		return 0
	}
	return int64(rows) * int64(cols/f.Group) * 2
}

// Fits returns an error unless a row of cols values can be coded: whole groups,
// whole 32-bit words.
func (f Format) Fits(cols int) error {
	if !f.Coded() {
		return nil
	}
	if f.Group <= 0 || cols%f.Group != 0 {
		return fmt.Errorf("%d columns are not whole groups of %d", cols, f.Group)
	}
	if cols*f.Bits%32 != 0 {
		return fmt.Errorf("%d columns of %d bits are not whole 32-bit words", cols, f.Bits)
	}
	return nil
}
