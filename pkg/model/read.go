package model

import (
	"fmt"

	"substrate/pkg/doc"
)

// chunkBytes is the size of a read. Larger ones are not faster; the chunk and
// what it decodes to should stay in the second level cache.
const chunkBytes = 256 << 10

// ReadTensor fills dst with the values of t, row-major [Rows, Cols], in
// float32: dequantized, in Hugging Face row order, the matrix t.Source.Index
// of a stacked tensor. len(dst) must be Rows*Cols. It needs a buffer of
// 256 KiB or one row. A value that is not finite is an error.
func (m *Model) ReadTensor(dst []float32, t *doc.Tensor) error {
	return m.ReadRows(dst, t, 0, t.Rows)
}

// ReadRows is [Model.ReadTensor] for rows row0 to row0+rows alone;
// len(dst) must be rows*Cols.
func (m *Model) ReadRows(dst []float32, t *doc.Tensor, row0, rows int) error {
	info, err := m.lookup(t)
	if err != nil {
		return err
	}
	if err := checkRows(t, row0, rows, len(dst)); err != nil {
		return err
	}
	take := func(row, col int, src []byte) error {
		at := (row-row0)*t.Cols + col
		values, bytes := info.dtype.block()
		out := dst[at : at+int(int64(len(src))/bytes*values)]
		decode(info.dtype, out, src)
		if i := firstNonFinite(out); i >= 0 {
			return m.notFinite(t, info, row*t.Cols+col+i)
		}
		return nil
	}
	return m.walk(t, info, row0, rows, take)
}

// ReadRaw fills dst with the 16-bit values of a bf16 or f16 tensor, little
// endian, in Hugging Face row order; len(dst) must be 2*Rows*Cols. A value
// that is not finite is an error.
func (m *Model) ReadRaw(dst []byte, t *doc.Tensor) error {
	info, err := m.lookup(t)
	if err != nil {
		return err
	}
	if info.dtype != bf16 && info.dtype != f16 {
		return fmt.Errorf("tensor %s is %s: only bf16 and f16 can be read unchanged", t.Source.Name, info.dtype)
	}
	if err := checkRows(t, 0, t.Rows, len(dst)/2); err != nil {
		return err
	}
	exponent := uint16(0x7f80)
	if info.dtype == f16 {
		exponent = 0x7c00
	}
	take := func(row, col int, src []byte) error {
		copy(dst[2*(row*t.Cols+col):], src)
		if i := firstExponent16(src, exponent); i >= 0 {
			return m.notFinite(t, info, row*t.Cols+col+i)
		}
		return nil
	}
	return m.walk(t, info, 0, t.Rows, take)
}

func checkRows(t *doc.Tensor, row0, rows, values int) error {
	if row0 < 0 || rows < 0 || row0 > t.Rows-rows {
		return fmt.Errorf("tensor %s: rows %d to %d of %d", t.Source.Name, row0, row0+rows, t.Rows)
	}
	if values != rows*t.Cols {
		return fmt.Errorf("tensor %s: space for %d values, want %d rows of %d", t.Source.Name, values, rows, t.Cols)
	}
	return nil
}

func (m *Model) notFinite(t *doc.Tensor, info tensorInfo, i int) error {
	return &Error{File: m.files[info.file].name, Offset: -1, Key: "tensor " + t.Source.Name, Damaged: true,
		Reason: fmt.Sprintf("value [%d, %d] is not a finite number", i/t.Cols, i%t.Cols)}
}
