package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// FuzzProducts compares products of fuzzed shapes and formats with their
// definition.
func FuzzProducts(f *testing.F, configs ...Config) {
	f.Add(uint64(1), uint16(7), uint8(3), uint8(1), uint8(2), true)
	f.Add(uint64(2), uint16(64), uint8(9), uint8(5), uint8(20), false)
	f.Add(uint64(3), uint16(17), uint8(40), uint8(33), uint8(11), true)
	f.Add(uint64(4), uint16(1), uint8(1), uint8(9), uint8(0), false)
	all := formats()
	f.Fuzz(func(t *testing.T, seed uint64, rows uint16, groups, tokens, format uint8, bias bool) {
		n, k := int(rows)%200+1, int(tokens)%40+1
		for _, c := range configs {
			b := c.bench(t)
			b.rng = rand.New(rand.NewPCG(seed, 1))
			parts := make([]*matrix, 1+seed%backend.MaxParts)
			cols := (int(groups)%40 + 1) * 128
			for i := range parts {
				f := all[(int(format)+11*i)%len(all)]
				if i == 0 && len(parts) == 1 {
					// Alone, a matrix may be as narrow as its format allows.
					cols = (int(groups)%40 + 1) * max(1, f.Group)
				}
				parts[i] = b.matrix(n, cols, f)
			}
			var offset []float32
			if bias {
				offset = b.normal(n, 1)
			}
			b.checkLinear(describe(parts[0].format, n, cols, k), k, offset, parts...)
		}
	})
}

// FuzzAttention compares attention of fuzzed shapes, taken in fuzzed steps,
// with its definition.
func FuzzAttention(f *testing.F, configs ...Config) {
	f.Add(uint64(1), uint8(2), uint8(3), uint8(64), uint8(0), uint8(90), true)
	f.Add(uint64(2), uint8(1), uint8(7), uint8(33), uint8(10), uint8(40), false)
	f.Fuzz(func(t *testing.T, seed uint64, kvHeads, group, headDim, window, positions uint8, half bool) {
		s := backend.AttentionSpec{KVHeads: int(kvHeads)%3 + 1, HeadDim: int(headDim)%130 + 1, Window: int(window)}
		s.Heads = s.KVHeads * (int(group)%9 + 1)
		s.Scale = float32(2 / math.Sqrt(float64(s.HeadDim)))
		kind := "f32"
		if half {
			kind = "f16"
		}
		for _, c := range configs {
			rng := rand.New(rand.NewPCG(seed, 2))
			var steps []int
			for left := int(positions)%150 + 1; left > 0; left -= steps[len(steps)-1] {
				steps = append(steps, rng.IntN(left)+1)
			}
			c.runAttention(t, kind, s, steps)
		}
	})
}

// FuzzExperts checks that a layer's experts give the same bits whether their
// rows come together or one by one, on fuzzed routes.
func FuzzExperts(f *testing.F, configs ...Config) {
	f.Add(uint64(1), uint8(3), uint8(40), uint8(2))
	f.Add(uint64(2), uint8(70), uint8(9), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, experts, tokens, topK uint8) {
		n, rows := int(experts)%80+1, int(tokens)%100+1
		k := int(topK)%min(n, 8) + 1
		for _, c := range configs {
			b := c.bench(t)
			b.rng = rand.New(rand.NewPCG(seed, 3))
			form := plane.Format{Bits: 4, Group: 32}
			calls := make([]backend.ExpertCall, n)
			for i := range calls {
				inner := 32 * (1 + i%2)
				calls[i] = backend.ExpertCall{
					Gate: b.linear(nil, b.matrix(inner, 64, form)), Up: b.linear(nil, b.matrix(inner, 64, form)), Down: b.linear(nil, b.matrix(64, inner, form)),
				}
			}
			for row := range rows {
				for j, e := range b.rng.Perm(n)[:k] {
					c := &calls[e]
					c.InRows, c.OutRows = append(c.InRows, int32(row)), append(c.OutRows, int32(row*k+j))
				}
			}
			x, out := b.register(rows, 64, b.normal(rows*64, 1)), b.register(rows*k, 64, nil)
			b.Experts(out, x, calls)
			together := b.read(out)
			b.Load(out, make([]float32, rows*k*64))
			for _, call := range calls {
				for i := range call.InRows {
					one := call
					one.InRows, one.OutRows = call.InRows[i:i+1], call.OutRows[i:i+1]
					b.Experts(out, x, []backend.ExpertCall{one})
				}
			}
			if !b.same(together, b.read(out)) {
				t.Error(fmt.Sprintf("%d experts, %d rows, top %d: rows one by one give other bits", n, rows, k))
			}
		}
	})
}
