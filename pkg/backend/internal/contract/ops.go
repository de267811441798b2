package contract

import (
	"fmt"

	"substrate/pkg/backend"
)

func (t *Table) tensor(name string, x backend.Tensor) error {
	if x.ID < 1 || int(x.ID) > len(t.tensors) {
		return fmt.Errorf("%s: no such register (id %d)", name, x.ID)
	}
	made := &t.tensors[x.ID-1]
	if x.Cols != made.Cols || x.Rows < 1 || x.Rows > made.Rows {
		return fmt.Errorf("%s: shape [%d, %d] of a register made as [%d, %d]", name, x.Rows, x.Cols, made.Rows, made.Cols)
	}
	return nil
}

// shaped checks a register and that it is [rows, cols].
func (t *Table) shaped(name string, x backend.Tensor, rows, cols int) error {
	if err := t.tensor(name, x); err != nil {
		return err
	}
	if x.Rows != rows || x.Cols != cols {
		return fmt.Errorf("%s: shape [%d, %d], want [%d, %d]", name, x.Rows, x.Cols, rows, cols)
	}
	return nil
}

func (t *Table) vector(name string, v backend.Vector) error {
	if v.ID < 1 || int(v.ID) > len(t.vectors) || v.Len != t.vectors[v.ID-1] {
		return fmt.Errorf("%s: no such vector (id %d, length %d)", name, v.ID, v.Len)
	}
	return nil
}

func (s shape) is(m backend.Matrix) bool { return int(s.rows) == m.Rows && int(s.cols) == m.Cols }

// linear checks that w is made of matrices of one shape, and a bias to match.
func (t *Table) linear(name string, w *backend.Linear) (rows, cols int, err error) {
	if w == nil || w.N < 1 || w.N > backend.MaxParts {
		n := 0
		if w != nil {
			n = w.N
		}
		return 0, 0, fmt.Errorf("%s: %d parts, want 1 to %d", name, n, backend.MaxParts)
	}
	rows, cols = w.Parts[0].Rows, w.Parts[0].Cols
	for i := range w.N {
		m := w.Parts[i]
		if m.ID < 1 || int(m.ID) > len(t.matrices) || !t.matrices[m.ID-1].is(m) {
			return 0, 0, fmt.Errorf("%s: part %d: no such matrix (id %d, [%d, %d])", name, i, m.ID, m.Rows, m.Cols)
		}
		if m.Rows != rows || m.Cols != cols {
			return 0, 0, fmt.Errorf("%s: part %d is [%d, %d], part 0 [%d, %d]", name, i, m.Rows, m.Cols, rows, cols)
		}
	}
	if w.Bias != (backend.Vector{}) {
		if err := t.vector(name+": bias", w.Bias); err != nil {
			return 0, 0, err
		}
		if w.Bias.Len != rows {
			return 0, 0, fmt.Errorf("%s: bias of %d for %d outputs", name, w.Bias.Len, rows)
		}
	}
	return rows, cols, nil
}

func apart(dst, x backend.Tensor) error {
	if dst.ID == x.ID {
		return fmt.Errorf("destination and input are one register (id %d)", dst.ID)
	}
	return nil
}

// Embed checks the arguments of that op; so do the methods below.
func (t *Table) Embed(dst backend.Tensor, ids []int32, table *backend.Linear) error {
	rows, cols, err := t.linear("table", table)
	if err != nil {
		return err
	}
	if table.Bias != (backend.Vector{}) {
		return fmt.Errorf("table: an embedding has no bias")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			return fmt.Errorf("id %d at %d: outside a table of %d rows", id, i, rows)
		}
	}
	return t.shaped("dst", dst, len(ids), cols)
}

func (t *Table) RMSNorm(dst, x backend.Tensor, w backend.Vector) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if err := t.vector("w", w); err != nil {
		return err
	}
	if x.Cols%w.Len != 0 {
		return fmt.Errorf("%d columns are not whole chunks of %d", x.Cols, w.Len)
	}
	return t.shaped("dst", dst, x.Rows, x.Cols)
}

func (t *Table) Linear(dst, x backend.Tensor, w *backend.Linear) error {
	rows, cols, err := t.linear("w", w)
	if err != nil {
		return err
	}
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if x.Cols != cols {
		return fmt.Errorf("x has %d columns, w [%d, %d]", x.Cols, rows, cols)
	}
	if err := t.shaped("dst", dst, x.Rows, rows); err != nil {
		return err
	}
	return apart(dst, x)
}

func (t *Table) Linears(dsts []backend.Tensor, x backend.Tensor, ws []*backend.Linear) error {
	if len(dsts) != len(ws) {
		return fmt.Errorf("%d destinations for %d weights", len(dsts), len(ws))
	}
	for i := range ws {
		if err := t.Linear(dsts[i], x, ws[i]); err != nil {
			return fmt.Errorf("product %d: %w", i, err)
		}
		for j := range i {
			if dsts[i].ID == dsts[j].ID {
				return fmt.Errorf("products %d and %d have one destination (id %d)", j, i, dsts[i].ID)
			}
		}
	}
	return nil
}

// HeadLinear checks that w is a matrix for each head.
func (t *Table) HeadLinear(dst, x backend.Tensor, w *backend.Linear, heads int) error {
	rows, cols, err := t.linear("w", w)
	if err != nil {
		return err
	}
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if heads < 1 || rows%heads != 0 || x.Cols%heads != 0 || x.Cols/heads != cols {
		return fmt.Errorf("x has %d columns, w [%d, %d], for %d heads", x.Cols, rows, cols, heads)
	}
	if w.Bias != (backend.Vector{}) {
		return fmt.Errorf("w: a product by heads has no bias")
	}
	if err := t.shaped("dst", dst, x.Rows, rows); err != nil {
		return err
	}
	return apart(dst, x)
}

func (t *Table) Concat(dst, x, y backend.Tensor, heads int) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if err := t.tensor("y", y); err != nil {
		return err
	}
	if heads < 1 || x.Cols%heads != 0 || y.Cols%heads != 0 || x.Rows != y.Rows {
		return fmt.Errorf("[%d, %d] and [%d, %d] are not the parts of %d heads", x.Rows, x.Cols, y.Rows, y.Cols, heads)
	}
	if err := t.shaped("dst", dst, x.Rows, x.Cols+y.Cols); err != nil {
		return err
	}
	if err := apart(dst, x); err != nil {
		return err
	}
	return apart(dst, y)
}

func (t *Table) RoPE(x backend.Tensor, headDim, pos int, freqs []float32) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if headDim < 2 || headDim%2 != 0 || headDim > maxHeadDim || x.Cols%headDim != 0 {
		return fmt.Errorf("%d columns are not heads of %d, even and at most %d", x.Cols, headDim, maxHeadDim)
	}
	if len(freqs) != headDim/2 {
		return fmt.Errorf("%d frequencies for heads of %d, want %d", len(freqs), headDim, headDim/2)
	}
	if pos < 0 || pos > maxDim {
		return fmt.Errorf("position %d", pos)
	}
	return nil
}

// Attention also moves the cache's length behind the new rows.
func (t *Table) Attention(dst, q, k, v backend.Tensor, kv backend.KV, pos int, s backend.AttentionSpec) error {
	if kv.ID < 1 || int(kv.ID) > len(t.caches) {
		return fmt.Errorf("no such KV cache (id %d)", kv.ID)
	}
	c := &t.caches[kv.ID-1]
	if s.KVHeads != c.spec.Heads || s.HeadDim != c.spec.HeadDim {
		return fmt.Errorf("%d KV heads of %d, the cache has %d of %d", s.KVHeads, s.HeadDim, c.spec.Heads, c.spec.HeadDim)
	}
	if s.Heads < 1 || s.Heads > maxDim || s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("%d heads are not a multiple of %d KV heads", s.Heads, s.KVHeads)
	}
	if s.Window < 0 {
		return fmt.Errorf("window %d", s.Window)
	}
	if err := t.tensor("q", q); err != nil {
		return err
	}
	if q.Cols != s.Heads*s.HeadDim {
		return fmt.Errorf("q has %d columns, want %d heads of %d", q.Cols, s.Heads, s.HeadDim)
	}
	if err := t.shaped("k", k, q.Rows, s.KVHeads*s.HeadDim); err != nil {
		return err
	}
	out := s.HeadDim
	if c.spec.Latent > 0 {
		out = c.spec.Latent
		if v != (backend.Tensor{}) {
			return fmt.Errorf("v: a latent cache takes none")
		}
	} else if err := t.shaped("v", v, q.Rows, s.KVHeads*s.HeadDim); err != nil {
		return err
	}
	if err := t.shaped("dst", dst, q.Rows, s.Heads*out); err != nil {
		return err
	}
	for _, x := range [...]backend.Tensor{q, k, v} {
		if err := apart(dst, x); err != nil {
			return err
		}
	}
	if s.Sinks != (backend.Vector{}) {
		if err := t.vector("sinks", s.Sinks); err != nil {
			return err
		}
		if s.Sinks.Len != s.Heads {
			return fmt.Errorf("%d sinks for %d heads", s.Sinks.Len, s.Heads)
		}
	}
	if pos < 0 || pos > c.length || q.Rows > c.spec.Context-pos {
		return fmt.Errorf("positions %d to %d: the cache holds %d of %d", pos, pos+q.Rows, c.length, c.spec.Context)
	}
	c.length = pos + q.Rows
	return nil
}

func (t *Table) SwiGLU(dst, gate, up backend.Tensor) error {
	if err := t.tensor("gate", gate); err != nil {
		return err
	}
	if err := t.shaped("up", up, gate.Rows, gate.Cols); err != nil {
		return err
	}
	if err := t.shaped("dst", dst, gate.Rows, gate.Cols); err != nil {
		return err
	}
	return apart(dst, up)
}

func (t *Table) Add(dst, x backend.Tensor) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	return t.shaped("dst", dst, x.Rows, x.Cols)
}

func (t *Table) Take(dst, x backend.Tensor, from int) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if err := t.shaped("dst", dst, dst.Rows, x.Cols); err != nil {
		return err
	}
	if from < 0 || from > x.Rows-dst.Rows {
		return fmt.Errorf("rows %d to %d of %d", from, from+dst.Rows, x.Rows)
	}
	return apart(dst, x)
}

func (t *Table) Route(ids []int32, weights []float32, x backend.Tensor, w *backend.Linear, s backend.RouteSpec) error {
	rows, cols, err := t.linear("w", w)
	if err != nil {
		return err
	}
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if x.Cols != cols {
		return fmt.Errorf("x has %d columns, w [%d, %d]", x.Cols, rows, cols)
	}
	if rows > maxExperts {
		return fmt.Errorf("%d experts, at most %d", rows, maxExperts)
	}
	if s.TopK < 1 || s.TopK > rows {
		return fmt.Errorf("top %d of %d experts", s.TopK, rows)
	}
	if s.Groups < 0 || s.Groups > maxGroups || s.Groups > 0 && (rows%s.Groups != 0 || s.TopGroups < 1 || s.TopGroups > s.Groups || s.TopK > rows/s.Groups*s.TopGroups) {
		return fmt.Errorf("top %d of %d experts in %d of %d groups", s.TopK, rows, s.TopGroups, s.Groups)
	}
	if len(ids) != x.Rows*s.TopK || len(weights) != x.Rows*s.TopK {
		return fmt.Errorf("room for %d ids and %d weights, want %d rows of %d", len(ids), len(weights), x.Rows, s.TopK)
	}
	return nil
}

func (t *Table) Experts(out, x backend.Tensor, calls []backend.ExpertCall) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if err := t.tensor("out", out); err != nil {
		return err
	}
	if err := apart(out, x); err != nil {
		return err
	}
	if t.stamp++; t.stamp == 0 {
		clear(t.written)
		t.stamp = 1
	}
	for i := range calls {
		if err := t.expert(out, x, &calls[i]); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

func (t *Table) expert(out, x backend.Tensor, c *backend.ExpertCall) error {
	inner, cols, err := t.linear("gate", c.Gate)
	if err != nil {
		return err
	}
	upRows, upCols, err := t.linear("up", c.Up)
	if err != nil {
		return err
	}
	downRows, downCols, err := t.linear("down", c.Down)
	if err != nil {
		return err
	}
	if upRows != inner || upCols != cols || downCols != inner {
		return fmt.Errorf("gate [%d, %d], up [%d, %d], down [%d, %d] do not fit", inner, cols, upRows, upCols, downRows, downCols)
	}
	if x.Cols != cols || out.Cols != downRows {
		return fmt.Errorf("x has %d columns and out %d, want %d and %d", x.Cols, out.Cols, cols, downRows)
	}
	if len(c.InRows) != len(c.OutRows) {
		return fmt.Errorf("%d input rows for %d output rows", len(c.InRows), len(c.OutRows))
	}
	for i, in := range c.InRows {
		if in < 0 || int(in) >= x.Rows {
			return fmt.Errorf("input row %d of %d", in, x.Rows)
		}
		to := c.OutRows[i]
		if to < 0 || int(to) >= out.Rows {
			return fmt.Errorf("output row %d of %d", to, out.Rows)
		}
		if t.written[to] == t.stamp {
			return fmt.Errorf("output row %d is written twice", to)
		}
		t.written[to] = t.stamp
	}
	return nil
}

func (t *Table) Combine(dst, y backend.Tensor, weights []float32, k int) error {
	if err := t.tensor("dst", dst); err != nil {
		return err
	}
	if k < 1 || k > maxDim || len(weights) != dst.Rows*k {
		return fmt.Errorf("%d weights for %d rows of %d", len(weights), dst.Rows, k)
	}
	if err := t.shaped("y", y, dst.Rows*k, dst.Cols); err != nil {
		return err
	}
	return apart(dst, y)
}

func (t *Table) Logits(dst []float32, x backend.Tensor, row int) error {
	if err := t.tensor("x", x); err != nil {
		return err
	}
	if row < 0 || row >= x.Rows || len(dst) != x.Cols {
		return fmt.Errorf("row %d of [%d, %d] into %d values", row, x.Rows, x.Cols, len(dst))
	}
	return nil
}

func (t *Table) Load(dst backend.Tensor, values []float32) error {
	if err := t.tensor("dst", dst); err != nil {
		return err
	}
	if len(values) != dst.Rows*dst.Cols {
		return fmt.Errorf("%d values for [%d, %d]", len(values), dst.Rows, dst.Cols)
	}
	return nil
}

// Concat joins chunks of x and y alternately: all chunks of x have one length,
// all of y one, and there are chunks of each.
func Concat(dst, x, y []float32, chunks int) {
	nx, ny := len(x)/chunks, len(y)/chunks
	for i := range chunks {
		copy(dst[i*(nx+ny):], x[i*nx:][:nx])
		copy(dst[i*(nx+ny)+nx:], y[i*ny:][:ny])
	}
}
