package plane

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Check returns an error unless kernels exist for the format.
func (f Format) Check() error {
	if f.Scale > F16 {
		return fmt.Errorf("16-bit float type %d is unknown", f.Scale)
	}
	switch f.Bits {
	case 16, 32:
		if f.Group != 0 {
			return fmt.Errorf("dense %d-bit values have no groups, yet the format says %d", f.Bits, f.Group)
		}
		return nil
	case 2, 3, 4, 5, 6, 8:
		switch f.Group {
		case 32, 64, 128:
			return nil
		}
		return fmt.Errorf("group of %d: want 32, 64 or 128", f.Group)
	}
	return fmt.Errorf("%d bits: want codes of 2, 3, 4, 5, 6 or 8, or dense 16 or 32", f.Bits)
}

// Matrix is a [Rows, Cols] matrix as it lies in memory.
type Matrix struct {
	Rows, Cols int
	Format     Format
	Data       []byte // codes, or dense values
	Scales     []byte // [Rows][Cols/Group], where coded
	Biases     []byte
}

// Check returns an error unless the format is known, fits the columns and the
// planes have at least their sizes.
func (m *Matrix) Check() error {
	if m.Rows <= 0 || m.Cols <= 0 || int64(m.Rows) > math.MaxInt64/64/int64(m.Cols) {
		return fmt.Errorf("[%d, %d] is not the shape of a matrix", m.Rows, m.Cols)
	}
	if err := m.Format.Check(); err != nil {
		return err
	}
	if err := m.Format.Fits(m.Cols); err != nil {
		return err
	}
	if got, want := int64(len(m.Data)), m.Format.DataBytes(m.Rows, m.Cols); got < want {
		return fmt.Errorf("data of %d bytes: [%d, %d] of %d bits needs %d", got, m.Rows, m.Cols, m.Format.Bits, want)
	}
	want := m.Format.ScaleBytes(m.Rows, m.Cols)
	if int64(len(m.Scales)) < want || int64(len(m.Biases)) < want {
		return fmt.Errorf("scales of %d and biases of %d bytes: [%d, %d] in groups of %d needs %d each",
			len(m.Scales), len(m.Biases), m.Rows, m.Cols, m.Format.Group, want)
	}
	return nil
}

// Row dequantizes one row to float32: the exact product scale*q, plus bias,
// rounded once. (A 16-bit float times a code of up to 8 bits has at most 19
// significant bits, so fused and separate operations agree.) len(dst) is Cols.
//
// It is the slow, obviously right twin of every kernel's own decoding.
func (m *Matrix) Row(dst []float32, row int) {
	dst = dst[:m.Cols]
	f := m.Format
	size := m.Cols * f.Bits / 8
	data := m.Data[row*size:][:size]
	switch f.Bits {
	case 16:
		f.Scale.Decode(dst, data)
		return
	case 32:
		DecodeFloat32(dst, data)
		return
	}
	perRow := m.Cols / f.Group
	scales := m.Scales[row*perRow*2:][:perRow*2]
	biases := m.Biases[row*perRow*2:][:perRow*2]
	mask := uint64(1)<<f.Bits - 1
	for g := range perRow {
		scale := f.Scale.Value(binary.LittleEndian.Uint16(scales[2*g:]))
		bias := f.Scale.Value(binary.LittleEndian.Uint16(biases[2*g:]))
		// Eight codes of any width are exactly Bits bytes.
		for group := dst[g*f.Group:][:f.Group]; len(group) > 0; group = group[8:] {
			word := load(data, f.Bits)
			for i := range group[:8] {
				group[i] = scale*float32(word&mask) + bias
				word >>= f.Bits
			}
			data = data[f.Bits:]
		}
	}
}

// Dequantize dequantizes all rows; len(dst) is Rows*Cols.
func (m *Matrix) Dequantize(dst []float32) {
	for row := range m.Rows {
		m.Row(dst[row*m.Cols:][:m.Cols], row)
	}
}

// load reads the first n <= 8 bytes of src; what lies above them is anything.
func load(src []byte, n int) uint64 {
	if len(src) >= 8 {
		return binary.LittleEndian.Uint64(src)
	}
	var buf [8]byte
	copy(buf[:n], src)
	return binary.LittleEndian.Uint64(buf[:])
}

// DecodeFloat32 reads len(dst) little-endian float32 numbers from src.
func DecodeFloat32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// EncodeFloat32 writes src as little-endian float32 numbers to dst.
func EncodeFloat32(dst []byte, src []float32) {
	dst = dst[:4*len(src)]
	for i, x := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}
