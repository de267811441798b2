//go:build cgo

package mlx

import (
	"testing"

	"golang.org/x/sys/unix"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// The model of shim/bench/loop.cpp.
const (
	benchLayers, benchHidden, benchHeads, benchKVHeads, benchDim = 8, 512, 8, 4, 64
	benchExperts, benchTopK, benchInner                          = 16, 4, 256
	benchVocab, benchContext                                     = 4096, 512
)

type benchLayer struct {
	q, k, v, o, router *backend.Linear
	experts            [benchExperts][3]*backend.Linear
	kv                 backend.KV
}

type benchModel struct {
	*kit
	layers                             []benchLayer
	embedding, head                    *backend.Linear
	norm                               backend.Vector
	hidden, x, q, k, v, y, out, logits backend.Tensor
	freqs                              []float32
	ids                                []int32
	weights                            []float32
	dsts                               []backend.Tensor
	calls                              []backend.ExpertCall
	row                                []int32
	places                             [benchTopK][]int32
	values                             []float32
}

func (k *kit) benchMatrix(rows, cols int, f plane.Format) *backend.Linear {
	k.Helper()
	align := func(n int64) int64 { return (n + 63) &^ 63 }
	spec := backend.MatrixSpec{Rows: rows, Cols: cols, Format: f, Scales: align(f.DataBytes(rows, cols))}
	spec.Biases = spec.Scales + align(f.ScaleBytes(rows, cols))
	s := k.slab(spec.Biases + max(1, f.ScaleBytes(rows, cols)))
	mem := s.Bytes()
	if f.Coded() {
		for i := range spec.Scales {
			mem[i] = 0x37
		}
		set := func(at int64, v float32) {
			values := make([]float32, rows*cols/f.Group)
			for i := range values {
				values[i] = v
			}
			f.Scale.Encode(mem[at:], values)
		}
		set(spec.Scales, 0.001)
		set(spec.Biases, -0.0075)
	} else {
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = 0.01
		}
		f.Scale.Encode(mem, values)
	}
	m, err := k.Matrix(s, spec)
	if err != nil {
		k.Fatal(err)
	}
	return one(m)
}

func newBenchModel(k *kit) *benchModel {
	k.Helper()
	q4 := plane.Format{Bits: 4, Group: 64}
	m := &benchModel{kit: k, layers: make([]benchLayer, benchLayers), freqs: make([]float32, benchDim/2)}
	const q, kv = benchHeads * benchDim, benchKVHeads * benchDim
	for i := range m.layers {
		l := &m.layers[i]
		l.q, l.k, l.v = k.benchMatrix(q, benchHidden, q4), k.benchMatrix(kv, benchHidden, q4), k.benchMatrix(kv, benchHidden, q4)
		l.o, l.router = k.benchMatrix(benchHidden, q, q4), k.benchMatrix(benchExperts, benchHidden, plane.Format{Bits: 16})
		for e := range l.experts {
			l.experts[e] = [3]*backend.Linear{k.benchMatrix(benchInner, benchHidden, q4), k.benchMatrix(benchInner, benchHidden, q4), k.benchMatrix(benchHidden, benchInner, q4)}
		}
		var err error
		if l.kv, err = k.KV(backend.KVSpec{Heads: benchKVHeads, HeadDim: benchDim, Context: benchContext, Type: "f32"}); err != nil {
			k.Fatal(err)
		}
	}
	m.embedding, m.head = k.benchMatrix(benchVocab, benchHidden, q4), k.benchMatrix(benchVocab, benchHidden, q4)
	m.norm = k.ones(benchHidden)
	m.hidden, m.x, m.q, m.y = k.register(1, benchHidden, 0), k.register(1, benchHidden, 0), k.register(1, q, 0), k.register(1, q, 0)
	m.k, m.v, m.out, m.logits = k.register(1, kv, 0), k.register(1, kv, 0), k.register(benchTopK, benchHidden, 0), k.register(1, benchVocab, 0)
	m.ids, m.weights, m.values = make([]int32, benchTopK), make([]float32, benchTopK), make([]float32, benchVocab)
	m.dsts, m.row = []backend.Tensor{m.q, m.k, m.v}, []int32{0}
	for i := range m.places {
		m.places[i] = []int32{int32(i)}
	}
	return m
}

// token is one step of decoding, as arch and run make it.
func (m *benchModel) token(pos int) {
	m.Embed(m.hidden, []int32{int32(pos)}, m.embedding)
	for i := range m.layers {
		l := &m.layers[i]
		m.RMSNorm(m.x, m.hidden, m.norm, 1e-5)
		m.Linears(m.dsts, m.x, []*backend.Linear{l.q, l.k, l.v})
		m.RoPE(m.q, benchDim, pos, m.freqs)
		m.RoPE(m.k, benchDim, pos, m.freqs)
		m.Attention(m.y, m.q, m.k, m.v, l.kv, pos, backend.AttentionSpec{Heads: benchHeads, KVHeads: benchKVHeads, HeadDim: benchDim, Scale: 0.125})
		m.Linear(m.x, m.y, l.o)
		m.Add(m.hidden, m.x)
		m.RMSNorm(m.x, m.hidden, m.norm, 1e-5)
		if err := m.Route(m.ids, m.weights, m.x, l.router, backend.RouteSpec{TopK: benchTopK, Norm: true}); err != nil {
			m.Fatal(err)
		}
		m.calls = m.calls[:0]
		for j, id := range m.ids {
			e := &l.experts[id]
			m.calls = append(m.calls, backend.ExpertCall{Gate: e[0], Up: e[1], Down: e[2], InRows: m.row, OutRows: m.places[j]})
		}
		m.Experts(m.out, m.x, m.calls)
		m.Combine(m.hidden, m.out, m.weights, benchTopK)
	}
	m.RMSNorm(m.x, m.hidden, m.norm, 1e-5)
	m.Linear(m.logits, m.x, m.head)
	if err := m.Logits(m.values, m.logits, 0); err != nil {
		m.Fatal(err)
	}
	m.sync()
}

// BenchmarkToken is a token through a small mixture of experts: see
// `make bench-mlx`, which sets a loop in C++ beside it.
func BenchmarkToken(b *testing.B) {
	m := newBenchModel(start(b))
	const warm = 5
	for i := range warm {
		m.token(i)
	}
	used := processor(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m.token((warm + i) % benchContext)
	}
	b.ReportMetric((processor(b)-used)/float64(b.N), "cpu-ns/op")
}

// processor is the processor time of this process, in nanoseconds.
func processor(b *testing.B) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}
