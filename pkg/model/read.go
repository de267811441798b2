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
// of a stacked tensor, the part t.Source.Part of a larger one. len(dst) must
// be Rows*Cols. A value that is not finite is an error.
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
	if m.files == nil {
		return fmt.Errorf("tensor %s: the model is closed", t.Source.Name)
	}
	if err := m.gather(dst, t, &info, row0, rows); err != nil {
		return err
	}
	if i := firstNonFinite(dst); i >= 0 {
		return m.notFinite(t, &info, row0*t.Cols+i)
	}
	return nil
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

func (m *Model) notFinite(t *doc.Tensor, info *tensorInfo, i int) error {
	return &Error{File: m.files[info.file].name, Offset: -1, Key: "tensor " + t.Source.Name, Damaged: true,
		Reason: fmt.Sprintf("value [%d, %d] is not a finite number", i/t.Cols, i%t.Cols)}
}

// values fills dst with the values of a tensor from value at on, in the order
// of the file.
func (m *Model) values(dst []float32, t *tensorInfo, at int64) error {
	size, bytes := t.block()
	// Blocks that begin before at or end behind dst are decoded apart.
	if lead := at % size; lead != 0 || int64(len(dst))%size != 0 {
		whole := make([]float32, (lead+int64(len(dst))+size-1)/size*size)
		if err := m.values(whole, t, at-lead); err != nil {
			return err
		}
		copy(dst, whole[lead:])
		return nil
	}
	buf := m.buffers.Get().(*[]byte)
	defer m.buffers.Put(buf)
	step := chunkBytes / bytes * size
	for from := int64(0); from < int64(len(dst)); from += step {
		out := dst[from:min(from+step, int64(len(dst)))]
		first := at + from
		src := (*buf)[:int64(len(out))/size*bytes]
		if err := m.files[t.file].readAt(src, t.offset+first/size*bytes); err != nil {
			return err
		}
		if t.planes == nil {
			decode(t.dtype, out, src)
		} else if err := m.decodePlanes(out, t, first, src); err != nil {
			return err
		}
	}
	return nil
}
