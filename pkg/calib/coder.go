package calib

import (
	"context"
	"fmt"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// Rows reads rows of a model's tensors: see quant.Source.
type Rows = quant.Source

// coder turns reference values into what a level's records hold: it encodes
// an op exactly as sb-pack will.
type coder struct {
	encodings map[string]*doc.Encoding
	enc       quant.Encoder
	bytes     [][]byte // of the records of the level at hand
}

func newCoder(encodings []doc.Encoding, src Rows, stats *quant.Stats, threads int) *coder {
	c := &coder{encodings: map[string]*doc.Encoding{}, enc: quant.Encoder{Source: src, Stats: stats, Threads: threads}}
	for i := range encodings {
		c.encodings[encodings[i].ID] = &encodings[i]
	}
	return c
}

// records encodes op at level, skeleton first. The bytes stay valid until the
// next call.
func (c *coder) records(ctx context.Context, op *doc.Op, level *doc.Level) ([]quant.Record, error) {
	var records []quant.Record
	for n, id := range level.Encodings {
		e := c.encodings[id]
		if e == nil {
			return nil, fmt.Errorf("level %s: encoding %q is not in the catalogue", level.ID, id)
		}
		layout, err := footprint.Layout(op, e)
		if err != nil {
			return nil, err
		}
		if n == len(c.bytes) {
			c.bytes = append(c.bytes, nil)
		}
		if int64(cap(c.bytes[n])) < layout.Bytes {
			c.bytes[n] = make([]byte, layout.Bytes)
		}
		b := c.bytes[n][:layout.Bytes]
		if err := c.enc.Encode(ctx, b, op, e, &layout, records...); err != nil {
			return nil, fmt.Errorf("level %s: %w", level.ID, err)
		}
		records = append(records, quant.Record{Layout: &layout, Bytes: b})
	}
	return records, nil
}

// denseRows reads rows of the reference in memory.
type denseRows struct{ m *Dense }

func (d denseRows) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	for i := range d.m.p.Ops {
		op := &d.m.p.Ops[i]
		for j := range op.Tensors {
			if &op.Tensors[j] == t {
				copy(dst, d.m.Tensor(i, j)[row*t.Cols:(row+rows)*t.Cols])
				return nil
			}
		}
	}
	return fmt.Errorf("tensor %q is not of this model", t.Source.Name)
}
