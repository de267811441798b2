//go:build cgo

package mlx

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"substrate/pkg/backend"
)

// model is a layer of attention and one of experts, small enough for many
// steps.
type model struct {
	*kit
	hidden, x, q, k, v, y, out backend.Tensor
	kv                         backend.KV
	w                          *backend.Linear
	norm                       backend.Vector
}

const modelCols, modelContext = 64, 32

func newModel(k *kit) *model {
	k.Helper()
	s := k.slab(codedBytes(modelCols, modelCols))
	matrix, spec := k.coded(s, modelCols, modelCols)
	fill(s, spec, 3, 0.01)
	kv, err := k.KV(backend.KVSpec{Heads: 2, HeadDim: 32, Context: modelContext, Type: "f16"})
	if err != nil {
		k.Fatal(err)
	}
	r := func(rows int) backend.Tensor { return k.register(rows, modelCols, 0) }
	return &model{kit: k, hidden: r(1), x: r(1), q: r(1), k: r(1), v: r(1), y: r(1), out: r(2), kv: kv, w: one(matrix), norm: k.ones(modelCols)}
}

// step computes a token at a position.
func (m *model) step(pos int) []float32 {
	m.Helper()
	m.Embed(m.hidden, []int32{int32(pos % modelCols)}, m.w)
	m.RMSNorm(m.x, m.hidden, m.norm, 1e-5)
	m.Linears([]backend.Tensor{m.q, m.k, m.v}, m.x, []*backend.Linear{m.w, m.w, m.w})
	m.RoPE(m.q, 32, pos, make([]float32, 16))
	m.Attention(m.y, m.q, m.k, m.v, m.kv, pos, backend.AttentionSpec{Heads: 2, KVHeads: 2, HeadDim: 32, Scale: 0.1})
	m.Add(m.hidden, m.y)
	ids, weights := make([]int32, 2), make([]float32, 2)
	if err := m.Route(ids, weights, m.hidden, m.w, backend.RouteSpec{TopK: 2, Norm: true}); err != nil {
		m.Fatal(err)
	}
	call := backend.ExpertCall{Gate: m.w, Up: m.w, Down: m.w, InRows: []int32{0}, OutRows: []int32{0}}
	other := call
	other.OutRows = []int32{1}
	m.Experts(m.out, m.hidden, []backend.ExpertCall{call, other})
	m.Combine(m.hidden, m.out, weights, 2)
	m.sync()
	return m.row(m.hidden, 0)
}

// anonymous is the memory of this process that is its own, in bytes.
func anonymous(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("no RssAnon")
	return 0
}

// Ten thousand steps leave no array, no node and no buffer behind.
func TestStepsWithoutGrowth(t *testing.T) {
	m := newModel(start(t))
	steps := 10000
	if testing.Short() {
		steps = 1000
	}
	warm := steps / 2 // malloc's own pools settle until then
	var before backend.Memory
	var rss int64
	for i := range steps {
		for _, v := range m.step(i % modelContext)[:1] {
			if math.IsNaN(float64(v)) {
				t.Fatalf("step %d: NaN", i)
			}
		}
		if i == warm {
			runtime.GC()
			before, rss = m.memory(true), anonymous(t)
		}
	}
	runtime.GC()
	after := m.memory(false)
	if after.Active > before.Active+1<<10 || after.Peak > before.Active+1<<20 {
		t.Errorf("MLX holds %d bytes after step %d, %d after step %d (peak %d)", before.Active, warm, after.Active, steps, after.Peak)
	}
	if grown := anonymous(t) - rss; grown > 1<<20 && !testing.Short() {
		t.Errorf("the process grew by %d bytes in %d steps", grown, steps-warm)
	}
}

// Queries whose scores would take much memory are computed in portions: the
// result is that of single steps.
func TestAttentionInPortions(t *testing.T) {
	k := start(t)
	const rows, heads, dim = 400, 32, 8
	spec := backend.AttentionSpec{Heads: heads, KVHeads: heads / 4, HeadDim: dim, Scale: 0.5}
	wave := func(n int, step float64) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(math.Sin(step * float64(i)))
		}
		return values
	}
	qs, ks, vs := wave(rows*heads*dim, 0.7), wave(rows*heads/4*dim, 1.1), wave(rows*heads/4*dim, 0.3)
	q, key, v, y := k.register(rows, heads*dim, 0), k.register(rows, heads/4*dim, 0), k.register(rows, heads/4*dim, 0), k.register(rows, heads*dim, 0)
	for _, kind := range []string{"f32", "f16"} {
		for _, spec.Window = range []int{0, 50} {
			var results [2][]float32
			for i, step := range []int{rows, 100} {
				kv, err := k.KV(backend.KVSpec{Heads: heads / 4, HeadDim: dim, Context: rows + 1, Type: kind})
				if err != nil {
					t.Fatal(err)
				}
				for pos := 0; pos < rows; pos += step {
					k.Load(q.Head(step), qs[pos*q.Cols:][:step*q.Cols])
					k.Load(key.Head(step), ks[pos*key.Cols:][:step*key.Cols])
					k.Load(v.Head(step), vs[pos*v.Cols:][:step*v.Cols])
					k.sync()
					before := k.memory(true)
					k.Attention(y.Head(step), q.Head(step), key.Head(step), v.Head(step), kv, pos, spec)
					k.sync()
					if grown := k.memory(false).Peak - before.Active; grown > k.scratch {
						t.Errorf("attention of %d rows allocated %d bytes", step, grown)
					}
					for r := range step {
						results[i] = append(results[i], k.row(y.Head(step), r)...)
					}
				}
			}
			for i, a := range results[0] {
				if b := results[1][i]; math.Abs(float64(a-b)) > 1e-6 {
					t.Fatalf("%s, window %d: value %d of row %d is %v in one step, %v in steps of 100", kind, spec.Window, i%q.Cols, i/q.Cols, a, b)
				}
			}
		}
	}
}

// A prefill chunk takes no more memory beside registers than the backend says,
// however many ops wait for one another.
func TestScratchOfChunk(t *testing.T) {
	k := start(t)
	const rows, hidden, inner, experts = 120, 256, 256, 8
	s := k.slab(codedBytes(inner, hidden))
	gate, spec := k.coded(s, inner, hidden)
	fill(s, spec, 3, 0.01)
	down, _ := k.coded(s, hidden, inner)
	x, y, out := k.register(rows, hidden, 0.01), k.register(rows, hidden, 0), k.register(rows*experts, hidden, 0)
	norm := k.ones(hidden)
	calls := make([]backend.ExpertCall, experts)
	for i := range calls {
		calls[i] = backend.ExpertCall{Gate: one(gate), Up: one(gate), Down: one(down)}
		for r := range rows {
			calls[i].InRows, calls[i].OutRows = append(calls[i].InRows, int32(r)), append(calls[i].OutRows, int32(r*experts+i))
		}
	}
	weights := make([]float32, rows*experts)
	k.sync()
	before := k.memory(true)
	for range 4 {
		k.RMSNorm(y, x, norm, 1e-5)
		k.Experts(out, y, calls)
		k.Combine(x, out, weights, experts)
	}
	k.sync()
	registers := int64(4 * hidden * (2*rows + rows*experts))
	allowed := k.scratch + registers
	if grown := k.memory(false).Peak - before.Active; grown > allowed {
		t.Errorf("a chunk allocated %d bytes, more than %d", grown, allowed)
	} else {
		t.Logf("a chunk allocated %d bytes of %d", grown, allowed)
	}
}
