package mlxlm

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"substrate/internal/safetensors"
	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// writeWeights writes the safetensors file, record by record: each of its
// tensors goes to its place.
func (e *export) writeWeights(ctx context.Context, name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	header, err := e.header()
	if err != nil {
		return err
	}
	if _, err := f.Write(header); err != nil {
		return err
	}
	var raw []byte
	for _, r := range e.records {
		if err := ctx.Err(); err != nil {
			return err
		}
		layout := e.store.Layout(r.record)
		if int64(cap(raw)) < layout.Bytes {
			raw = make([]byte, layout.Bytes)
		}
		raw = raw[:layout.Bytes]
		if err := e.store.Read(raw, r.record); err != nil {
			return err
		}
		for i := range r.parts {
			if err := r.parts[i].write(f, int64(len(header)), raw, &layout.Tensors[i]); err != nil {
				return fmt.Errorf("record %q: %w", r.record.ID, err)
			}
		}
		e.opt.Progress(layout.Bytes)
	}
	return f.Sync()
}

// header is the safetensors header.
func (e *export) header() ([]byte, error) {
	tensors := map[string]safetensors.Tensor{}
	for _, m := range e.modules {
		for _, t := range m.tensors {
			tensors[t.name] = safetensors.Tensor{DType: t.dtype, Shape: t.shape, Offsets: [2]int64{t.offset, t.offset + t.bytes}}
		}
	}
	return safetensors.Header("mlx", tensors)
}

// write writes a tensor of a record's raw bytes to its place in the file,
// whose data begin at base.
func (p part) write(f *os.File, base int64, raw []byte, t *doc.TensorLayout) error {
	m := p.module
	if !m.coded() {
		return p.writeAt(f, base, 0, raw[t.Data:][:int64(t.Rows)*int64(t.Cols)*int64(valueBytes(t.DType))])
	}
	format := plane.Format{Bits: t.Bits, Group: t.Group}
	codes := raw[t.Data:][:format.DataBytes(t.Rows, t.Cols)]
	scales := raw[t.Scales:][:format.ScaleBytes(t.Rows, t.Cols)]
	biases := raw[t.Biases:][:format.ScaleBytes(t.Rows, t.Cols)]
	if t.Bits != m.bits {
		codes = widen(codes, t.Rows*t.Cols, t.Bits, m.bits)
	}
	if times := t.Group / m.group; times > 1 {
		scales, biases = repeat(scales, times), repeat(biases, times)
	}
	for i, b := range [][]byte{codes, scales, biases} {
		if err := p.writeAt(f, base, i, b); err != nil {
			return err
		}
	}
	return nil
}

// writeAt writes the part of tensor i of the module.
func (p part) writeAt(f *os.File, base int64, i int, b []byte) error {
	t := &p.module.tensors[i]
	share, at := t.bytes, base+t.offset
	if p.module.experts > 0 {
		share /= int64(p.module.experts)
		at += share * int64(p.index)
	}
	if int64(len(b)) != share {
		return fmt.Errorf("tensor %s: %d bytes where %d belong", t.name, len(b), share)
	}
	_, err := f.WriteAt(b, at)
	return err
}

// widen stores n codes in more bits each.
func widen(src []byte, n, from, to int) []byte {
	const block = 32 // codes of any width are whole bytes
	dst := make([]byte, n/8*to)
	var codes [block]uint8
	for i := range n / block {
		plane.Unpack(codes[:], src[i*block/8*from:], from)
		plane.Pack(dst[i*block/8*to:], codes[:], to)
	}
	return dst
}

// repeat stores each 16-bit value several times.
func repeat(src []byte, times int) []byte {
	dst := make([]byte, 0, len(src)*times)
	for i := 0; i < len(src); i += 2 {
		for range times {
			dst = append(dst, src[i], src[i+1])
		}
	}
	return dst
}
