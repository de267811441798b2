package backendtest

import (
	"fmt"
	"slices"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

func (c Config) slab(t *testing.T) {
	b := c.bench(t)
	for _, n := range []int64{1, 16 << 10, 100_001} {
		s := b.slabOf(n)
		mem := s.Bytes()
		if int64(len(mem)) < n {
			t.Errorf("slab of %d has %d bytes", n, len(mem))
		}
		if address(mem)%(16<<10) != 0 {
			t.Errorf("slab at %#x is not aligned to 16 KiB", address(mem))
		}
		for i := range mem {
			if mem[i] != 0 {
				t.Fatalf("byte %d of a new slab is %d", i, mem[i])
			}
			mem[i] = 1
		}
	}
	if _, err := b.Alloc(-1); err == nil {
		t.Error("a slab of -1 bytes was allocated")
	}
}

// checkLinear runs one product and compares every output.
func (b *bench) checkLinear(what string, tokens int, bias []float32, parts ...*matrix) {
	b.Helper()
	rows, cols := parts[0].Rows, parts[0].Cols
	values := b.normal(tokens*cols, 1)
	x, y := b.register(tokens, cols, values), b.register(tokens, rows, nil)
	b.Linear(y, x, b.linear(bias, parts...))
	b.compare(what, b.read(y), values, bias, parts...)
}

func (b *bench) compare(what string, got, x, bias []float32, parts ...*matrix) {
	b.Helper()
	rows, cols := parts[0].Rows, parts[0].Cols
	for i, y := range got {
		want, bound := b.product(x[i/rows*cols:][:cols], i%rows, bias, parts...)
		b.near(y, want, bound, "%s: output %d of token %d", what, i%rows, i/rows)
	}
}

func (c Config) linear(t *testing.T) {
	for _, f := range formats() {
		b := c.bench(t)
		unit := max(1, f.Group)
		for _, s := range []struct{ rows, cols, tokens int }{
			{1, unit, 1}, {7, 3 * unit, 1}, {33, 9 * unit, 2}, {18, 17 * unit, 3}, {5, 2 * unit, 19},
		} {
			b.checkLinear(describe(f, s.rows, s.cols, s.tokens), s.tokens, nil, b.matrix(s.rows, s.cols, f))
		}
		if !f.Coded() {
			for _, cols := range []int{15, 16, 17, 47, 576} {
				b.checkLinear(describe(f, 9, cols, 5), 5, nil, b.matrix(9, cols, f))
			}
		}
	}
	// More tokens and rows than a tile of any kernel.
	b := c.bench(t)
	f := plane.Format{Bits: 4, Group: 64}
	b.checkLinear("large", 300, nil, b.matrix(67, 128, f))
	b.checkLinear("tall", 2, b.normal(1999, 1), b.matrix(1999, 64, f))
}

func (c Config) linearParts(t *testing.T) {
	b := c.bench(t)
	low := plane.Format{Bits: 2, Group: 64}
	for _, tokens := range []int{1, 5, 21} {
		m := []*matrix{b.matrix(19, 256, low), b.matrix(19, 256, plane.Format{Bits: 3, Group: 32, Scale: plane.F16}), b.matrix(19, 256, plane.Format{Bits: 16})}
		for n := 1; n <= len(m); n++ {
			b.checkLinear(fmt.Sprintf("%d parts, %d tokens", n, tokens), tokens, b.normal(19, 1), m[:n]...)
		}
	}
}

func (c Config) linears(t *testing.T) {
	b := c.bench(t)
	m := []*matrix{
		b.matrix(64, 192, plane.Format{Bits: 4, Group: 64}),
		b.matrix(17, 192, plane.Format{Bits: 2, Group: 32}),
		b.matrix(16, 192, plane.Format{Bits: 16}),
	}
	for _, tokens := range []int{1, 2, 30} {
		values := b.normal(tokens*192, 1)
		x := b.register(tokens, 192, values)
		var dsts []backend.Tensor
		var ws []*backend.Linear
		for _, m := range m {
			dsts = append(dsts, b.register(tokens, m.Rows, nil))
			ws = append(ws, b.linear(nil, m))
		}
		b.Linears(dsts, x, ws)
		for i, m := range m {
			b.compare(fmt.Sprintf("product %d of %d tokens", i, tokens), b.read(dsts[i]), values, nil, m)
		}
	}
}

// A token's output is the same bits alone as among others: a prefill in
// chunks, or a prefix taken from an earlier run, changes nothing.
func (c Config) batch(t *testing.T) {
	for _, f := range []plane.Format{{Bits: 32}, {Bits: 16}, {Bits: 4, Group: 64}, {Bits: 3, Group: 32}, {Bits: 8, Group: 128}} {
		b := c.bench(t)
		const tokens, rows, cols = 37, 29, 1152
		m := b.matrix(rows, cols, f)
		w := b.linear(nil, m)
		values := b.normal(tokens*cols, 1)
		x, y := b.register(tokens, cols, values), b.register(tokens, rows, nil)
		b.Linear(y, x, w)
		together := b.read(y)
		for i := range tokens {
			b.Load(x.Head(1), values[i*cols:][:cols])
			b.Linear(y.Head(1), x.Head(1), w)
			if alone := b.read(y.Head(1)); !b.same(alone, together[i*rows:][:rows]) {
				t.Errorf("%s: token %d differs alone: %v, together %v", describe(f, rows, cols, tokens), i, alone[:3], together[i*rows:][:3])
				break
			}
		}
	}
}

func (c Config) embed(t *testing.T) {
	b := c.bench(t)
	for _, f := range formats() {
		cols := 129
		if f.Coded() {
			cols = 3 * f.Group
		}
		m, residual := b.matrix(50, cols, f), b.matrix(50, cols, plane.Format{Bits: 16})
		ids := []int32{49, 0, 7, 7}
		dst := b.register(4, cols, nil)
		b.Embed(dst, ids, b.linear(nil, m))
		for i, got := range b.read(dst) {
			if want := m.row(int(ids[i/cols]))[i%cols]; got != want {
				t.Fatalf("%s: row %d, value %d: got %v, want %v", describe(f, 50, cols, 4), i/cols, i%cols, got, want)
			}
		}
		b.Embed(dst, ids, b.linear(nil, m, residual))
		for i, got := range b.read(dst) {
			id := int(ids[i/cols])
			if want := m.row(id)[i%cols] + residual.row(id)[i%cols]; got != want {
				t.Fatalf("%s: two parts, row %d, value %d: got %v, want %v", describe(f, 50, cols, 4), i/cols, i%cols, got, want)
			}
		}
	}
}

func (c Config) experts(t *testing.T) {
	const hidden, inner, tokens, slots = 128, 96, 21, 2
	for _, f := range []plane.Format{{Bits: 4, Group: 32}, {Bits: 2, Group: 32}, {Bits: 16}} {
		b := c.bench(t)
		type expert struct{ gate, up, down *matrix }
		all := make([]expert, 3)
		for i := range all {
			all[i] = expert{b.matrix(inner, hidden, f), b.matrix(inner, hidden, f), b.matrix(hidden, inner, f)}
		}
		values := b.normal(tokens*hidden, 1)
		x, out := b.register(tokens, hidden, values), b.register(tokens*slots, hidden, b.normal(tokens*slots*hidden, 1))
		before := b.read(out)
		calls := make([]backend.ExpertCall, len(all))
		owner := make([]int, tokens*slots)
		for i := range owner {
			owner[i] = -1
		}
		for i, e := range all {
			calls[i] = backend.ExpertCall{Gate: b.linear(nil, e.gate), Up: b.linear(nil, e.up), Down: b.linear(nil, e.down)}
		}
		for row := range tokens {
			for s := range slots {
				// The first token's second slot stays unused, the last
				// expert serves more rows than a tile.
				if row == 0 && s == 1 {
					continue
				}
				e := s*(1+row%2) + b.rng.IntN(1)
				c := &calls[e]
				c.InRows = append(c.InRows, int32(row))
				c.OutRows = append(c.OutRows, int32(row*slots+s))
				owner[row*slots+s] = e
			}
		}
		b.Experts(out, x, calls)
		got := b.read(out)
		for row, e := range owner {
			have := got[row*hidden:][:hidden]
			if e < 0 {
				if !slices.Equal(have, before[row*hidden:][:hidden]) {
					t.Fatalf("row %d that no call names was written", row)
				}
				continue
			}
			b.checkExpert(fmt.Sprintf("%s: row %d", describe(f, inner, hidden, tokens), row), have, values[row/slots*hidden:][:hidden], all[e].gate, all[e].up, all[e].down)
		}
		// One call at a time gives the same bits, so does one row at a time.
		for i := range calls {
			b.Experts(out, x, calls[i:i+1])
		}
		if !b.same(got, b.read(out)) {
			t.Errorf("%s: calls one at a time give other bits", describe(f, inner, hidden, tokens))
		}
		for _, call := range calls {
			for i := range call.InRows {
				one := call
				one.InRows, one.OutRows = call.InRows[i:i+1], call.OutRows[i:i+1]
				b.Experts(out, x, []backend.ExpertCall{one})
			}
		}
		if !b.same(got, b.read(out)) {
			t.Errorf("%s: rows one at a time give other bits", describe(f, inner, hidden, tokens))
		}
	}
}

// checkExpert compares with the definition, letting the intermediate be off
// by what its own products may be.
func (b *bench) checkExpert(what string, got, x []float32, gate, up, down *matrix) {
	b.Helper()
	h := make([]float32, gate.Rows)
	off := make([]float64, gate.Rows)
	for i := range h {
		g, gBound := b.product(x, i, nil, gate)
		u, uBound := b.product(x, i, nil, up)
		h[i] = float32(silu(g) * u)
		// The slope of silu is below 1.1.
		off[i] = 1.1*gBound*(abs(u)+uBound) + abs(silu(g))*uBound + 4*b.Rounding*abs(silu(g)*u)
	}
	for r, y := range got {
		want, bound := b.product(h, r, nil, down)
		for i, w := range down.row(r) {
			bound += abs(float64(w)) * off[i] * 1.02 // and the larger unit it may cause
		}
		b.near(y, want, bound, "%s: output %d", what, r)
	}
}
