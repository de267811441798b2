package model

import (
	"math"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// ReadCodes fills dst, whose format says what is wanted, with the codes, scales
// and biases of rows row0 to row0+dst.Rows of t as the checkpoint has them. ok
// is false if it has them in another form, or the rows in another order: then
// dst is as it was, and [Model.ReadRows] reads the values.
func (m *Model) ReadCodes(dst plane.Matrix, t *doc.Tensor, row0 int) (ok bool, err error) {
	info, err := m.lookup(t)
	if err != nil {
		return false, err
	}
	p, f := info.planes, dst.Format
	if info.dtype != affine || p.bits != f.Bits || p.group != f.Group || dst.Cols != t.Cols || t.Cols%f.Group != 0 ||
		p.scales.dtype.String() != f.Scale.String() || p.biases.dtype != p.scales.dtype {
		return false, nil
	}
	s := m.stored(t, &info)
	if t.Source.Part != nil || s.head > 0 {
		return false, nil
	}
	if err := checkRows(t, row0, dst.Rows, dst.Rows*dst.Cols); err != nil {
		return false, err
	}
	first := (s.base + int64(row0)*int64(t.Cols)) / int64(f.Group) // group
	groupBytes := int64(f.Group * f.Bits / 8)
	if err := m.files[info.file].readAt(dst.Data, info.offset+first*groupBytes); err != nil {
		return false, err
	}
	if err := m.files[p.scales.file].readAt(dst.Scales, p.scales.offset+2*first); err != nil {
		return false, err
	}
	if err := m.files[p.biases.file].readAt(dst.Biases, p.biases.offset+2*first); err != nil {
		return false, err
	}
	top := float32(int(1)<<f.Bits - 1)
	scales, biases := make([]float32, len(dst.Scales)/2), make([]float32, len(dst.Biases)/2)
	decode(p.scales.dtype, scales, dst.Scales)
	decode(p.biases.dtype, biases, dst.Biases)
	for g, scale := range scales {
		if worst := float64(scale*top + biases[g]); math.IsNaN(worst) || math.IsInf(worst, 0) {
			return false, m.notFinite(t, &info, row0*t.Cols+g*f.Group)
		}
	}
	return true, nil
}
