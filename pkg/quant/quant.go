// Package quant fits the values of a model's matrices to codes, scales and
// biases, and turns ops into the bytes of records.
//
// Everything that decides a record's bytes is here: calibration measures the
// loss of exactly the codes that sb-pack writes, because both call
// [Encoder.Encode]. The bytes depend on the source's values, the encoding and
// the statistics alone: not on the number of threads, nor on the processor.
// (The compiler may fuse x*y+z into one rounding on some processors; explicit
// conversions of products forbid it where a decision hangs on them.)
//
// [Dequantize] is the slow and obviously right way back to float32.
package quant

import (
	"fmt"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// Record is the raw bytes of a record and where its tensors lie in them.
type Record struct {
	Layout *doc.RecordLayout
	Bytes  []byte
}

// Matrix returns the matrix of a role; ok is false if the record has none.
func (r Record) Matrix(role string) (m plane.Matrix, ok bool, err error) {
	for i := range r.Layout.Tensors {
		if t := &r.Layout.Tensors[i]; t.Role == role {
			m, err = r.matrix(t)
			return m, true, err
		}
	}
	return plane.Matrix{}, false, nil
}

func (r Record) matrix(t *doc.TensorLayout) (plane.Matrix, error) {
	m := plane.Matrix{Rows: t.Rows, Cols: t.Cols}
	var err error
	switch t.DType {
	case "codes":
		m.Format = plane.Format{Bits: t.Bits, Group: t.Group}
		m.Format.Scale, err = plane.ParseFloat(t.Scale)
	case "f32":
		m.Format.Bits = 32
	default:
		m.Format.Bits = 16
		m.Format.Scale, err = plane.ParseFloat(t.DType)
	}
	if err == nil {
		err = m.Format.Fits(t.Cols)
	}
	if err != nil {
		return plane.Matrix{}, fmt.Errorf("role %s: %w", t.Role, err)
	}
	view := func(offset, n int64) []byte {
		if err == nil && (offset < 0 || n < 0 || offset > int64(len(r.Bytes))-n) {
			err = fmt.Errorf("role %s: %d bytes at offset %d are not inside the record's %d bytes", t.Role, n, offset, len(r.Bytes))
		}
		if err != nil || n == 0 {
			return nil
		}
		return r.Bytes[offset : offset+n : offset+n]
	}
	m.Data = view(t.Data, m.Format.DataBytes(t.Rows, t.Cols))
	scales := m.Format.ScaleBytes(t.Rows, t.Cols)
	m.Scales = view(t.Scales, scales)
	m.Biases = view(t.Biases, scales)
	return m, err
}
