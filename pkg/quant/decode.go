package quant

import (
	"fmt"

	"substrate/pkg/plane"
)

// Dequantize sets dst, row-major [rows, cols], to the matrix of a role at the
// level that parts make: the float32 sum of those parts that have the role,
// skeleton first.
func Dequantize(dst []float32, role string, parts ...Record) error {
	var matrices []plane.Matrix
	for _, p := range parts {
		m, ok, err := p.Matrix(role)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if m.Rows*m.Cols != len(dst) {
			return fmt.Errorf("role %s: record holds [%d, %d], want %d values", role, m.Rows, m.Cols, len(dst))
		}
		matrices = append(matrices, m)
	}
	if len(matrices) == 0 {
		return fmt.Errorf("role %s: in none of %d records", role, len(parts))
	}
	sumRows(dst, 0, matrices)
	return nil
}

// sumRows sets dst to the sum of rows [row, row+len(dst)/Cols) of matrices of
// one shape.
func sumRows(dst []float32, row int, matrices []plane.Matrix) {
	cols := matrices[0].Cols
	var values []float32
	for part, m := range matrices {
		for i := 0; i < len(dst); i += cols {
			if part == 0 {
				m.Row(dst[i:i+cols], row+i/cols)
				continue
			}
			if values == nil {
				values = make([]float32, cols)
			}
			m.Row(values, row+i/cols)
			for j, x := range values {
				dst[i+j] += x
			}
		}
	}
}

// rows returns rows [row, row+n) of m.
func rows(m plane.Matrix, row, n int) plane.Matrix {
	data := int(m.Format.DataBytes(1, m.Cols))
	scales := int(m.Format.ScaleBytes(1, m.Cols))
	m.Rows = n
	m.Data = m.Data[row*data : (row+n)*data]
	m.Scales = m.Scales[row*scales : (row+n)*scales]
	m.Biases = m.Biases[row*scales : (row+n)*scales]
	return m
}
