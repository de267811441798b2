package model

import (
	"fmt"

	"substrate/pkg/doc"
)

// sink takes the bytes of whole blocks, whose first value is [row, col]; they
// may run over several rows. They are valid until it returns.
type sink func(row, col int, src []byte) error

// walk reads rows row0 to row0+rows of t and hands them to sink.
func (m *Model) walk(t *doc.Tensor, info tensorInfo, row0, rows int, sink sink) error {
	if m.files == nil {
		return fmt.Errorf("tensor %s: the model is closed", t.Source.Name)
	}
	if rows == 0 {
		return nil
	}
	buf := m.buffers.Get().(*[]byte)
	defer m.buffers.Put(buf)
	start := info.offset
	rowBytes := info.dtype.bytes(int64(t.Cols))
	if t.Source.Index > 0 {
		start += int64(t.Source.Index) * int64(t.Rows) * rowBytes
	}
	switch {
	case t.Source.Permute != "" && t.Rows == 1:
		return m.walkPermutedVector(t, info, start, sink)
	case t.Source.Permute != "":
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
func (m *Model) walkPermuted(t *doc.Tensor, info tensorInfo, start int64, row0, rows int, buf []byte, sink sink) error {
	head := m.profile.Architecture.HeadDim
	rowBytes := info.dtype.bytes(int64(t.Cols))
	if int64(len(buf)) < rowBytes {
		buf = make([]byte, rowBytes)
	}
	batch := len(buf) / int(rowBytes)
	// Rows stay inside their head.
	first := row0 / head * head
	last := min((row0+rows+head-1)/head*head, t.Rows)
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

// walkPermutedVector is walkPermuted for a bias: one row, whose values stand
// for the rows of its matrix.
func (m *Model) walkPermutedVector(t *doc.Tensor, info tensorInfo, start int64, sink sink) error {
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
