package ref

import (
	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// rows names rows of a register, in their order; a nil pick is all of them.
// Row i begins at i*cols.
type rows struct {
	values []float32
	cols   int
	pick   []int32
}

func (r rows) row(i int) []float32 {
	if r.pick != nil {
		i = int(r.pick[i])
	}
	return r.values[i*r.cols:]
}

// linear sets n rows of y to w(x). A row of weights is decoded once and used
// for every row of x.
func (b *Backend) linear(y, x rows, n int, w *backend.Linear) {
	b.linearRows(y, x, n, w, 0, w.Parts[0].Rows)
}

// linearRows is linear for the outputs of w from first on.
func (b *Backend) linearRows(y, x rows, n int, w *backend.Linear, first, outputs int) {
	var parts [backend.MaxParts]*plane.Matrix
	for i := range w.N {
		parts[i] = &b.matrices[w.Parts[i].ID-1]
	}
	var bias []float32
	if w.Bias.ID != 0 {
		bias = b.vectors[w.Bias.ID-1]
	}
	inputs := parts[0].Cols
	b.parallel(outputs, inputs*(n+4), func(s *worker, lo, hi int) {
		weights, sums := s.weights[:inputs], s.sums[:n]
		for r := lo; r < hi; r++ {
			clear(sums)
			for _, m := range parts[:w.N] {
				m.Row(weights, first+r)
				i := 0
				for ; i+4 <= n; i += 4 {
					dot4(sums[i:], weights, x.row(i), x.row(i+1), x.row(i+2), x.row(i+3))
				}
				for ; i < n; i++ {
					sums[i] += dot(weights, x.row(i))
				}
			}
			for i, sum := range sums {
				if bias != nil {
					sum += float64(bias[first+r])
				}
				y.row(i)[r] = float32(sum)
			}
		}
	})
}

// dot is the sum of products, in float64, where products of two float32 are
// exact. Four partial sums keep the processor busy.
func dot(a, x []float32) float64 {
	x = x[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		a, x := a[i:i+4:i+4], x[i:i+4:i+4]
		s0 += float64(a[0]) * float64(x[0])
		s1 += float64(a[1]) * float64(x[1])
		s2 += float64(a[2]) * float64(x[2])
		s3 += float64(a[3]) * float64(x[3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i]) * float64(x[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// dot4 adds four dot products with one a to sums, each in the order of dot, so
// that a row's result does not depend on its neighbours.
func dot4(sums []float64, a, x, y, z, u []float32) {
	x, y, z, u, sums = x[:len(a)], y[:len(a)], z[:len(a)], u[:len(a)], sums[:4]
	var s [4][4]float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		a, x, y, z, u := a[i:i+4:i+4], x[i:i+4:i+4], y[i:i+4:i+4], z[i:i+4:i+4], u[i:i+4:i+4]
		for j := range 4 {
			v := float64(a[j])
			s[0][j] += v * float64(x[j])
			s[1][j] += v * float64(y[j])
			s[2][j] += v * float64(z[j])
			s[3][j] += v * float64(u[j])
		}
	}
	for ; i < len(a); i++ {
		v := float64(a[i])
		s[0][0] += v * float64(x[i])
		s[1][0] += v * float64(y[i])
		s[2][0] += v * float64(z[i])
		s[3][0] += v * float64(u[i])
	}
	for k := range sums {
		sums[k] += (s[k][0] + s[k][1]) + (s[k][2] + s[k][3])
	}
}

func (b *Backend) Embed(dst backend.Tensor, ids []int32, table *backend.Linear) {
	if !b.ok("embed", b.table.Embed(dst, ids, table)) {
		return
	}
	y, row := b.tensor(dst), b.workers[0].weights[:dst.Cols]
	for i, id := range ids {
		out := y[i*dst.Cols:][:dst.Cols]
		for p := range table.N {
			m := &b.matrices[table.Parts[p].ID-1]
			if p == 0 {
				m.Row(out, int(id))
				continue
			}
			m.Row(row, int(id))
			for j, v := range row {
				out[j] += v
			}
		}
	}
}

func (b *Backend) HeadLinear(dst, x backend.Tensor, w *backend.Linear, heads int) {
	if !b.ok("head_linear", b.table.HeadLinear(dst, x, w, heads)) {
		return
	}
	outputs, inputs := dst.Cols/heads, x.Cols/heads
	for h := range heads {
		y := rows{values: b.tensor(dst)[h*outputs:], cols: dst.Cols}
		b.linearRows(y, rows{values: b.tensor(x)[h*inputs:], cols: x.Cols}, x.Rows, w, h*outputs, outputs)
	}
}

func (b *Backend) Linear(dst, x backend.Tensor, w *backend.Linear) {
	if !b.ok("linear", b.table.Linear(dst, x, w)) {
		return
	}
	b.linear(rows{values: b.tensor(dst), cols: dst.Cols}, rows{values: b.tensor(x), cols: x.Cols}, x.Rows, w)
}

func (b *Backend) Linears(dsts []backend.Tensor, x backend.Tensor, ws []*backend.Linear) {
	if !b.ok("linears", b.table.Linears(dsts, x, ws)) {
		return
	}
	for i, w := range ws {
		b.linear(rows{values: b.tensor(dsts[i]), cols: dsts[i].Cols}, rows{values: b.tensor(x), cols: x.Cols}, x.Rows, w)
	}
}

func (b *Backend) Experts(out, x backend.Tensor, calls []backend.ExpertCall) {
	if !b.ok("experts", b.table.Experts(out, x, calls)) {
		return
	}
	xs, ys := b.tensor(x), b.tensor(out)
	for i := range calls {
		c := &calls[i]
		inner := c.Gate.Parts[0].Rows
		gate, up := rows{values: b.gate, cols: inner}, rows{values: b.up, cols: inner}
		for lo := 0; lo < len(c.InRows); lo += expertRows {
			n := min(expertRows, len(c.InRows)-lo)
			in := rows{xs, x.Cols, c.InRows[lo : lo+n]}
			b.linear(gate, in, n, c.Gate)
			b.linear(up, in, n, c.Up)
			activate(c.Act, gate.values, gate.values, up.values[:n*inner])
			b.linear(rows{ys, out.Cols, c.OutRows[lo : lo+n]}, gate, n, c.Down)
		}
	}
}
