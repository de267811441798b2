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
	sink := func(row, col int, src []byte) error {
		at := (row-row0)*t.Cols + col
		values, bytes := info.dtype.block()
		out := dst[at : at+int(int64(len(src))/bytes*values)]
		decode(info.dtype, out, src)
		if i := firstNonFinite(out); i >= 0 {
			i += row*t.Cols + col
			return &Error{File: m.files[info.file].name, Offset: -1, Key: "tensor " + t.Source.Name, Reason: fmt.Sprintf("value [%d, %d] is not a finite number", i/t.Cols, i%t.Cols)}
		}
		return nil
	}
	return m.walk(t, info, row0, rows, sink)
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
	sink := func(row, col int, src []byte) error {
		copy(dst[2*(row*t.Cols+col):], src)
		if i := firstExponent16(src, exponent); i >= 0 {
			i += row*t.Cols + col
			return &Error{File: m.files[info.file].name, Offset: -1, Key: "tensor " + t.Source.Name, Reason: fmt.Sprintf("value [%d, %d] is not a finite number", i/t.Cols, i%t.Cols)}
		}
		return nil
	}
	return m.walk(t, info, 0, t.Rows, sink)
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

// walk reads rows row0 to row0+rows of t and hands their bytes to sink in
// whole blocks: first those of values [row, col] on, which may run over
// several rows.
func (m *Model) walk(t *doc.Tensor, info tensorInfo, row0, rows int, sink func(row, col int, src []byte) error) error {
	if m.files == nil {
		return fmt.Errorf("tensor %s: the model is closed", t.Source.Name)
	}
	buf := m.buffers.Get().(*[]byte)
	defer m.buffers.Put(buf)
	start := info.offset
	rowBytes := info.dtype.bytes(int64(t.Cols))
	if t.Source.Index > 0 {
		start += int64(t.Source.Index) * int64(t.Rows) * rowBytes
	}
	if t.Source.Permute != "" {
		return m.walkPermuted(t, info, start, row0, rows, *buf, sink)
	}
	values, blockBytes := info.dtype.block()
	step := int64(len(*buf)) / blockBytes * blockBytes
	f := m.files[info.file]
	end := int64(rows) * rowBytes
	for at := int64(0); at < end; at += step {
		src := (*buf)[:min(step, end-at)]
		if err := f.readAt(src, start+int64(row0)*rowBytes+at); err != nil {
			return err
		}
		value := int(at / blockBytes * values)
		if err := sink(row0+value/t.Cols, value%t.Cols, src); err != nil {
			return err
		}
	}
	return nil
}

// walkPermuted is walk for rows that GGUF keeps in llama.cpp's rotary order:
// dimensions i and i+d/2 of a head of d lie side by side.
func (m *Model) walkPermuted(t *doc.Tensor, info tensorInfo, start int64, row0, rows int, buf []byte, sink func(row, col int, src []byte) error) error {
	// A bias is one row whose values, not rows, are permuted.
	perRow, total := t.Cols, t.Rows
	if t.Rows == 1 {
		return m.walkPermutedVector(t, info, start, sink)
	}
	head := m.profile.Architecture.HeadDim
	rowBytes := info.dtype.bytes(int64(perRow))
	batch := max(len(buf)/int(rowBytes), 1)
	if int64(len(buf)) < rowBytes {
		buf = make([]byte, rowBytes)
	}
	// Rows stay inside their head.
	first := row0 / head * head
	last := min((row0+rows+head-1)/head*head, total)
	f := m.files[info.file]
	for at := first; at < last; at += batch {
		n := min(batch, last-at)
		src := buf[:int64(n)*rowBytes]
		if err := f.readAt(src, start+int64(at)*rowBytes); err != nil {
			return err
		}
		for i := range n {
			row := unpermute(at+i, head)
			if row < row0 || row >= row0+rows {
				continue
			}
			if err := sink(row, 0, src[int64(i)*rowBytes:int64(i+1)*rowBytes]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Model) walkPermutedVector(t *doc.Tensor, info tensorInfo, start int64, sink func(row, col int, src []byte) error) error {
	values, size := info.dtype.block()
	if values != 1 {
		return fmt.Errorf("tensor %s: a quantized bias is not supported", t.Source.Name)
	}
	src := make([]byte, int64(t.Cols)*size)
	if err := m.files[info.file].readAt(src, start); err != nil {
		return err
	}
	for i := range t.Cols {
		at := int64(i) * size
		if err := sink(0, unpermute(i, m.profile.Architecture.HeadDim), src[at:at+size]); err != nil {
			return err
		}
	}
	return nil
}

// unpermute returns the Hugging Face row of a GGUF row of q or k.
// llama.cpp's converter turns [heads, 2, d/2] into [heads, d/2, 2].
func unpermute(row, head int) int {
	inHead := row % head
	return row - inHead + inHead%2*(head/2) + inHead/2
}
