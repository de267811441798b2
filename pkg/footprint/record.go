// Package footprint holds every byte formula of the system, computed from the
// profile alone: record layouts, KV caches, scratch, the ledger of a run. One
// arithmetic serves sb-feasible, sb-plan, sb-pack and sb-run.
package footprint

import (
	"fmt"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// Alignments inside records and files, in bytes. Kernels load wide words, so
// tensors start at 256; direct reads want file blocks, so records start and
// end at 4096.
const (
	TensorAlign = 256
	RecordAlign = 4096
)

// Align rounds n up to a multiple of a power of two.
func Align(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

// Format is how an encoding stores a tensor: coded where the tensor's rows
// are whole groups, else and for tensors marked Keep dense: vectors in f32,
// matrices in their source's 16-bit type, or f32 where the source is wider.
func Format(t *doc.Tensor, e *doc.Encoding) (plane.Format, error) {
	scale := plane.BF16
	if e.Bits < 32 {
		var err error
		if scale, err = plane.ParseFloat(e.Scale); err != nil {
			return plane.Format{}, err
		}
	}
	if t.Keep {
		switch {
		case t.Rows == 1 || e.Bits == 32:
			return plane.Format{Bits: 32}, nil
		case t.DType == "f16":
			return plane.Format{Bits: 16, Scale: plane.F16}, nil
		case t.DType == "bf16":
			return plane.Format{Bits: 16, Scale: plane.BF16}, nil
		}
		return plane.Format{Bits: 32}, nil
	}
	bits, group := e.Role(t.Role)
	f := plane.Format{Bits: bits, Group: group, Scale: scale}
	if f.Coded() && f.Fits(t.Cols) != nil {
		return plane.Format{Bits: 16, Scale: scale}, nil
	}
	return f, nil
}

// Layout places the tensors of op inside a record of encoding e: in the order
// of the profile, each part aligned to TensorAlign, the whole to RecordAlign.
// A residual holds only the tensors that e codes.
func Layout(op *doc.Op, e *doc.Encoding) (doc.RecordLayout, error) {
	var l doc.RecordLayout
	for i := range op.Tensors {
		t := &op.Tensors[i]
		f, err := Format(t, e)
		if err != nil {
			return l, fmt.Errorf("op %s: %w", op.ID, err)
		}
		if e.Residual && !f.Coded() {
			continue
		}
		p := doc.TensorLayout{Role: t.Role, Rows: t.Rows, Cols: t.Cols, Data: l.Bytes}
		l.Bytes = Align(l.Bytes+f.DataBytes(t.Rows, t.Cols), TensorAlign)
		switch {
		case f.Coded():
			p.DType, p.Bits, p.Group, p.Scale = "codes", f.Bits, f.Group, f.Scale.String()
			p.Scales = l.Bytes
			l.Bytes = Align(l.Bytes+f.ScaleBytes(t.Rows, t.Cols), TensorAlign)
			p.Biases = l.Bytes
			l.Bytes = Align(l.Bytes+f.ScaleBytes(t.Rows, t.Cols), TensorAlign)
		case f.Bits == 32:
			p.DType = "f32"
		default:
			p.DType = f.Scale.String()
		}
		l.Tensors = append(l.Tensors, p)
	}
	l.Bytes = Align(l.Bytes, RecordAlign)
	return l, nil
}
