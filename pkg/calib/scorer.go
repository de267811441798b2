package calib

import (
	"golang.org/x/sync/errgroup"

	"substrate/pkg/backend"
)

// scorer compares models with a reference, position by position, on all
// cores.
type scorer struct {
	vocab, threads int
	logits         []float32 // [rows][vocab] of the model at hand
	rows           []Row
}

// resize makes room for the logits of rows positions.
func (s *scorer) resize(rows int) {
	if n := rows * s.vocab; cap(s.logits) < n {
		s.logits = make([]float32, n)
	}
	s.logits = s.logits[:rows*s.vocab]
}

// fetch copies the logits of a finished step to the host.
func (s *scorer) fetch(f *Forward, rows int) error {
	s.resize(rows)
	for i := range rows {
		if err := f.G.Logits(s.row(i), i); err != nil {
			return err
		}
	}
	return nil
}

func (s *scorer) row(i int) []float32 { return s.logits[i*s.vocab : (i+1)*s.vocab] }

// reference is a scored sequence of the reference: the distribution at every
// position that has a successor, and the successor's logit.
type reference struct {
	at   []Reference
	next []float32
}

// prepare makes the reference of positions from fetched logits; next are the
// tokens that follow each.
func (s *scorer) prepare(r *reference, next []int32) {
	n := len(next)
	for len(r.at) < n {
		r.at = append(r.at, Reference{})
	}
	r.at = r.at[:n]
	r.next = r.next[:0]
	s.parallel(n, func(i int) { r.at[i].Prepare(s.row(i)) })
	for i, id := range next {
		r.next = append(r.next, s.row(i)[id])
	}
}

// score adds the fetched logits of the same positions to a document's score.
func (s *scorer) score(sum *Score, r *reference, next []int32) {
	n := len(next)
	if cap(s.rows) < n {
		s.rows = make([]Row, n)
	}
	s.rows = s.rows[:n]
	s.parallel(n, func(i int) { s.rows[i] = r.at[i].Compare(s.row(i)) })
	for i, id := range next {
		sum.Add(&r.at[i], s.rows[i], s.row(i)[id], r.next[i])
	}
}

// parallel calls f for 0..n-1. The calls write to places of their own, so the
// result does not depend on the number of threads.
func (s *scorer) parallel(n int, f func(i int)) {
	var g errgroup.Group
	for t := range s.threads {
		g.Go(func() error {
			for i := t; i < n; i += s.threads {
				f(i)
			}
			return nil
		})
	}
	_ = g.Wait() // f reports nothing
}

// readRows copies a register to host memory, row by row.
func readRows(dst []float32, b backend.Backend, x backend.Tensor) error {
	for i := range x.Rows {
		if err := b.Logits(dst[i*x.Cols:(i+1)*x.Cols], x, i); err != nil {
			return err
		}
	}
	return nil
}
