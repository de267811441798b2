package calib

import (
	"cmp"
	"context"
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
)

// A variant is the model with some ops in codes. It is the reference up to
// the first of them.
type variant struct {
	name   string
	from   int                         // stage of the first op in codes
	level  func(op *doc.Op) *doc.Level // nil for ops that stay at the reference
	f      *Forward                    // whose kernels compute it
	source Rows                        // of the values; nil: the reference's
	split  *group                      // experts among which the loss is to be split, nil if there are none
	x      *streams                    // from stage from on
	kept   map[int]*codedOp            // coded ops that a later stage shares: a tied embedding
	score  scored
}

// scored is what a sweep finds of a variant.
type scored struct {
	docs   []Score
	shares []float64 // of split's members
}

// sweep takes variants through the model, all of them through one stage after
// another, so that a stage's weights are in memory only while it is their
// turn, and scores them against the reference at the end.
type sweep struct {
	m    *measurement
	data *Data
	pool *streamPool
	from int      // the first stage
	ref  *streams // the reference's stream there; nil for stage 0
	// observe, if set, is asked for the stages at which the reference is
	// watched.
	observe *observer
	keep    map[int]*streams // stages at which to keep the reference's stream: filled by run
	tick    func()           // a variant passed a stage
}

// run takes the variants through. The reference's stream is used up.
func (s *sweep) run(ctx context.Context, variants []*variant) error {
	m := s.m
	var err error
	if s.ref == nil {
		if s.ref, err = s.pool.make(); err != nil {
			return err
		}
	}
	defer func() {
		s.ref.release()
		for _, v := range variants {
			v.x.release()
			v.x = nil
			for _, c := range v.kept {
				c.free()
			}
		}
	}()
	last := len(m.f.stages) - 1
	for i := s.from; i <= last; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, ok := s.keep[i]; ok {
			if s.keep[i], err = s.copyOf(s.ref); err != nil {
				return err
			}
		}
		if err := s.stage(ctx, i, variants, i == last); err != nil {
			return err
		}
	}
	return nil
}

// copyOf duplicates a stream.
func (s *sweep) copyOf(x *streams) (*streams, error) {
	y, err := s.pool.make()
	if err != nil {
		return nil, err
	}
	for n := range s.data.Sequences {
		rows, err := x.get(n)
		if err != nil {
			return nil, err
		}
		rows = append([]float32(nil), rows...)
		if err := y.put(n, func(dst []float32) error { copy(dst, rows); return nil }); err != nil {
			return nil, err
		}
	}
	return y, nil
}

// stage loads one stage and takes everything through it.
func (s *sweep) stage(ctx context.Context, i int, variants []*variant, head bool) error {
	m := s.m
	ref, err := m.loadStage(ctx, i)
	defer ref.free()
	if err != nil {
		return err
	}
	// What the reference's kernels see is known before anything is fitted to it.
	if s.observe != nil {
		if err := s.watch(i, ref, head); err != nil {
			return err
		}
	}
	if head {
		return s.score(ctx, i, ref, variants)
	}
	for _, v := range variants {
		if v.from > i {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.advance(ctx, i, ref, v); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		s.tick()
	}
	if s.observe == nil {
		return s.through(m.f, i, s.ref, s.ref, ref.weights)
	}
	return nil
}

// advance takes a variant through stage i.
func (s *sweep) advance(ctx context.Context, i int, ref *loaded, v *variant) error {
	coded, err := s.m.codeStage(ctx, i, ref, v)
	defer coded.free()
	if err != nil {
		return err
	}
	in := v.x
	if v.from == i {
		in = s.ref
		if v.x, err = s.pool.make(); err != nil {
			return err
		}
		if v.split != nil {
			if v.score.shares, err = s.expertShares(i, v.split, ref.weights, coded.weights); err != nil {
				return err
			}
		}
	}
	return s.through(v.f, i, in, v.x, coded.weights)
}

// through computes stage i of every sequence.
func (s *sweep) through(f *Forward, i int, in, out *streams, w Lookup) error {
	for n, seq := range s.data.Sequences {
		if err := s.begin(f, n, i, in); err != nil {
			return err
		}
		if err := f.run(&f.stages[i], w); err != nil {
			return err
		}
		if err := out.put(n, func(rows []float32) error { return readRows(rows, f.B, f.G.Hidden()) }); err != nil {
			return fmt.Errorf("sequence of document %d: %w", seq.Document, err)
		}
	}
	return nil
}

// begin starts a step of a sequence with the residual stream ahead of stage i.
func (s *sweep) begin(f *Forward, seq, i int, in *streams) error {
	if err := f.G.Begin(s.data.Sequences[seq].IDs, 0); err != nil || i == 0 {
		return err // the embedding reads ids, not the stream
	}
	rows, err := in.get(seq)
	if err == nil {
		f.B.Load(f.G.Hidden(), rows)
	}
	return err
}

// watch takes the reference through stage i under observation. The head's
// logits are not wanted.
func (s *sweep) watch(i int, ref *loaded, head bool) error {
	f, o := s.m.f, s.observe
	f.G.Observe = o.observe
	f.Routed = func(layer int, r *arch.Routes) error { return o.routed(layer, r, ref.weights) }
	defer func() { f.G.Observe, f.Routed = nil, nil }()
	o.at = i
	if !head {
		if err := s.through(f, i, s.ref, s.ref, ref.weights); err != nil {
			return err
		}
		return cmp.Or(o.err, o.flush())
	}
	for n := range s.data.Sequences {
		if err := s.headChunks(n, func(from, to int) error { return s.head(f, n, from, to, s.ref, ref.weights) }); err != nil {
			return err
		}
	}
	return cmp.Or(o.err, o.flush())
}

// headRows is how many positions go through the head at a time: logits of a
// large vocabulary are the largest registers.
const headRows = 32

// headChunks calls f for the positions of a sequence, some at a time.
func (s *sweep) headChunks(seq int, f func(from, to int) error) error {
	n := len(s.data.Sequences[seq].IDs)
	for from := 0; from < n; from += headRows {
		if err := f(from, min(from+headRows, n)); err != nil {
			return err
		}
	}
	return nil
}

// head computes the logits of some positions of a sequence.
func (s *sweep) head(f *Forward, seq, from, to int, x *streams, w Lookup) error {
	if err := f.G.Begin(s.data.Sequences[seq].IDs[from:to], from); err != nil {
		return err
	}
	rows, err := x.get(seq)
	if err != nil {
		return err
	}
	f.B.Load(f.G.Hidden(), rows[from*s.pool.hidden:to*s.pool.hidden])
	if err := f.run(&f.stages[len(f.stages)-1], w); err != nil {
		return err
	}
	return f.B.Sync()
}

// score compares the variants' distributions with the reference's, position by
// position.
func (s *sweep) score(ctx context.Context, last int, ref *loaded, variants []*variant) error {
	m := s.m
	weights := make([]Lookup, len(variants))
	for j, v := range variants {
		v.score.docs = make([]Score, len(s.data.Documents))
		coded, err := m.codeStage(ctx, last, ref, v)
		defer coded.free()
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		weights[j] = coded.weights
	}
	var at reference
	for n, seq := range s.data.Sequences {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.headChunks(n, func(from, to int) error {
			next := seq.IDs[from+1 : min(to+1, len(seq.IDs))]
			if len(next) == 0 {
				return nil
			}
			if err := s.head(m.f, n, from, to, s.ref, ref.weights); err != nil {
				return err
			}
			if err := m.s.fetch(m.f, to-from); err != nil {
				return err
			}
			m.s.prepare(&at, next)
			for j, v := range variants {
				x := v.x
				if v.from == last {
					x = s.ref
				}
				if err := s.head(v.f, n, from, to, x, weights[j]); err != nil {
					return err
				}
				if err := m.s.fetch(v.f, to-from); err != nil {
					return err
				}
				m.s.score(&v.score.docs[seq.Document], &at, next)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
