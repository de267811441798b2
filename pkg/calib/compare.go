package calib

import (
	"context"
	"slices"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Comparison is what a level loses when all of a model's linear layers have
// it, with embedding and head at the reference.
type Comparison struct {
	Level         string  `json:"level"`           // or the name of another checkpoint
	Bytes         int64   `json:"bytes"`           // of the linear layers' records
	SkeletonBytes int64   `json:"skeleton_bytes"`  // of the first record of each
	BitsPerWeight float64 `json:"bits_per_weight"` // with scales and biases, of the coded matrices
	KL            float64 `json:"kl"`              // nats per token
	KLError       float64 `json:"kl_error"`        // standard error, by document
}

// Other is another checkpoint of a model, with the same tensors: one that
// another quantizer rounded.
type Other struct {
	Name string
	Rows Rows
}

// Compare fits codes of every level to one text and measures them on another:
// what an encoding is worth on this model, with the parts fixed that all
// encodings treat alike. The linear layers of others are measured as they are.
func Compare(ctx context.Context, b backend.Backend, src Model, fit, test *Data, others []Other, opt MeasureOptions) ([]Comparison, error) {
	opt.Link = test
	if len(others) > 0 {
		opt.Encodings = append(slices.Clone(opt.Encodings), denseEncoding)
	}
	m, err := newMeasurement(b, src, fit, opt)
	if err != nil {
		return nil, err
	}
	if err := m.measure(ctx, fit, nil, true); err != nil {
		return nil, err
	}
	var variants []*variant
	out := make([]Comparison, len(opt.Levels))
	for i := range opt.Levels {
		level := &opt.Levels[i]
		variants = append(variants, &variant{name: level.ID, f: m.f, from: 1, level: func(op *doc.Op) *doc.Level {
			if !isLinear(op) {
				return nil
			}
			return level
		}})
		if out[i], err = levelSize(m.p, level, m.coder.encodings); err != nil {
			return nil, err
		}
	}
	exact := doc.Level{ID: denseEncoding.ID, Encodings: []string{denseEncoding.ID}}
	for _, other := range others {
		variants = append(variants, &variant{name: other.Name, f: m.f, from: 1, source: other.Rows, level: func(op *doc.Op) *doc.Level {
			if !isLinear(op) {
				return nil
			}
			return &exact
		}})
		size, err := levelSize(m.p, &exact, m.coder.encodings)
		if err != nil {
			return nil, err
		}
		size.Level = other.Name
		out = append(out, size)
	}
	if err := m.measure(ctx, test, variants, false); err != nil {
		return nil, err
	}
	for i, v := range variants {
		out[i].KL, out[i].KLError = Mean(v.score.docs)
	}
	return out, nil
}

// isLinear says whether an op's record has codes and lies between embedding and
// head.
func isLinear(op *doc.Op) bool {
	coded := func(t doc.Tensor) bool { return !t.Keep }
	return op.Kind != doc.KindEmbedding && op.Kind != doc.KindLMHead && slices.ContainsFunc(op.Tensors, coded)
}

// levelSize adds up the records of all linear layers at level.
func levelSize(p *doc.Profile, level *doc.Level, encodings map[string]*doc.Encoding) (c Comparison, err error) {
	c.Level = level.ID
	var weights, coded int64
	for i := range p.Ops {
		op := &p.Ops[i]
		if !isLinear(op) {
			continue
		}
		for n, id := range level.Encodings {
			layout, err := footprint.Layout(op, encodings[id])
			if err != nil {
				return c, err
			}
			bytes, err := footprint.RecordBytes(op, encodings[id])
			if err != nil {
				return c, err
			}
			c.Bytes += bytes
			if n == 0 {
				c.SkeletonBytes += bytes
			}
			for j := range layout.Tensors {
				t := &layout.Tensors[j]
				values := int64(t.Rows) * int64(t.Cols)
				if t.DType != "codes" {
					continue
				}
				if n == 0 {
					weights += values
				}
				coded += values*int64(t.Bits) + values/int64(t.Group)*32
			}
		}
	}
	if weights > 0 {
		c.BitsPerWeight = float64(coded) / float64(weights)
	}
	return c, nil
}

// Join unites the encodings and levels of specifications, without repeats.
func Join(specs []LevelSpec) (encodings []doc.Encoding, levels []doc.Level, err error) {
	seen := map[string]bool{}
	for _, s := range specs {
		es, ls, err := s.Expand()
		if err != nil {
			return nil, nil, err
		}
		for _, e := range es {
			if !seen["encoding "+e.ID] {
				encodings = append(encodings, e)
			}
			seen["encoding "+e.ID] = true
		}
		for _, l := range ls {
			if !seen["level "+l.ID] {
				levels = append(levels, l)
			}
			seen["level "+l.ID] = true
		}
	}
	return encodings, levels, nil
}
