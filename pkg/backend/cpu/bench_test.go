//go:build cgo

package cpu

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// load makes n matrices of one shape in one slab, with arbitrary codes and
// ordinary scales: denormal ones would cost time that no model spends.
func load(b *testing.B, c backend.Backend, n, rows, cols int, f plane.Format) []*backend.Linear {
	b.Helper()
	align := func(n int64) int64 { return (n + 63) &^ 63 }
	data, scales := align(f.DataBytes(rows, cols)), align(f.ScaleBytes(rows, cols))
	s, err := c.Alloc(int64(n) * (data + 2*scales))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Free)
	ws := make([]*backend.Linear, n)
	for i := range ws {
		at := int64(i) * (data + 2*scales)
		mem := s.Bytes()[at : at+data+2*scales]
		switch {
		case f.Coded():
			for j := range mem[:data] {
				mem[j] = byte(j * 37)
			}
			fill(f.Scale, mem[data:])
		case f.Bits == 32:
			for j := 0; j < len(mem); j += 4 {
				plane.EncodeFloat32(mem[j:], []float32{float32(j%23-11) / 100})
			}
		default:
			fill(f.Scale, mem)
		}
		m, err := c.Matrix(s, backend.MatrixSpec{Rows: rows, Cols: cols, Format: f, Data: at, Scales: at + data, Biases: at + data + scales})
		if err != nil {
			b.Fatal(err)
		}
		ws[i] = &backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{m}}
	}
	return ws
}

func fill(f plane.Float, mem []byte) {
	for j := 0; j+2 <= len(mem); j += 2 {
		h := f.Bits(float32(j%23-11) / 100)
		mem[j], mem[j+1] = byte(h), byte(h>>8)
	}
}

func open(b *testing.B, threads int, activations, path string) backend.Backend {
	b.Helper()
	c, err := Open(Options{Threads: threads, Activations: activations, ForcePath: path})
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func register(b *testing.B, c backend.Backend, rows, cols int) backend.Tensor {
	b.Helper()
	t, err := c.Tensor(rows, cols)
	if err != nil {
		b.Fatal(err)
	}
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = float32(i%17) - 8
	}
	c.Load(t, values)
	return t
}

// processor returns the processor time of this process, in nanoseconds: on a
// busy machine it says more than the clock does.
func processor(b *testing.B) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

var benchFormats = []plane.Format{
	{Bits: 2, Group: 64}, {Bits: 3, Group: 64}, {Bits: 4, Group: 64}, {Bits: 4, Group: 32}, {Bits: 5, Group: 64},
	{Bits: 6, Group: 64}, {Bits: 8, Group: 64}, {Bits: 16}, {Bits: 32},
}

// BenchmarkDecode is one token through matrices of 6144 x 2048, so many that
// no cache holds them; MB/s counts codes, scales and biases.
func BenchmarkDecode(b *testing.B) {
	const rows, cols = 6144, 2048
	for _, f := range benchFormats {
		for _, activations := range []string{Int8, F32} {
			for threads := 1; threads <= 2; threads++ {
				b.Run(fmt.Sprintf("q%dg%d/%s/threads%d", f.Bits, f.Group, activations, threads), func(b *testing.B) {
					c := open(b, threads, activations, "")
					bytes := f.DataBytes(rows, cols) + 2*f.ScaleBytes(rows, cols)
					ws := load(b, c, int(400<<20/bytes), rows, cols, f)
					x, y := register(b, c, 1, cols), register(b, c, 1, rows)
					b.SetBytes(bytes)
					start := processor(b)
					b.ResetTimer()
					for i := range b.N {
						c.Linear(y, x, ws[i%len(ws)])
					}
					b.ReportMetric(float64(bytes)*float64(b.N)/(processor(b)-start), "GB/cpu-s")
				})
			}
		}
	}
}

// BenchmarkPrefill is 256 tokens through one matrix.
func BenchmarkPrefill(b *testing.B) {
	for _, s := range [][2]int{{1536, 576}, {576, 1536}, {4096, 4096}} {
		for _, f := range []plane.Format{{Bits: 4, Group: 64}, {Bits: 4, Group: 32}, {Bits: 16}, {Bits: 32}} {
			for _, activations := range []string{Int8, F32} {
				for threads := 1; threads <= 2; threads++ {
					b.Run(fmt.Sprintf("%dx%d/q%dg%d/%s/threads%d", s[0], s[1], f.Bits, f.Group, activations, threads), func(b *testing.B) {
						const tokens = 256
						c := open(b, threads, activations, "")
						w := load(b, c, 1, s[0], s[1], f)[0]
						x, y := register(b, c, tokens, s[1]), register(b, c, tokens, s[0])
						start := processor(b)
						b.ResetTimer()
						for range b.N {
							c.Linear(y, x, w)
						}
						flops := 2 * tokens * float64(s[0]) * float64(s[1]) * float64(b.N)
						b.ReportMetric(flops/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
						b.ReportMetric(flops/(processor(b)-start), "GFLOP/cpu-s")
					})
				}
			}
		}
	}
}

// BenchmarkDispatch is the cost of an op that is just large enough to be
// shared by two threads.
func BenchmarkDispatch(b *testing.B) {
	for threads := 1; threads <= 2; threads++ {
		b.Run(fmt.Sprintf("threads%d", threads), func(b *testing.B) {
			c := open(b, threads, Int8, "")
			w := load(b, c, 1, 512, 512, plane.Format{Bits: 4, Group: 64})[0]
			x, y := register(b, c, 1, 512), register(b, c, 1, 512)
			for b.Loop() {
				c.Linear(y, x, w)
			}
		})
	}
}

// BenchmarkAttention is one query of 32 heads over 8 key-value heads of 128.
func BenchmarkAttention(b *testing.B) {
	for _, kind := range []string{"f32", "f16"} {
		for _, rows := range []int{1, 256} {
			for threads := 1; threads <= 2; threads++ {
				b.Run(fmt.Sprintf("%s/rows%d/threads%d", kind, rows, threads), func(b *testing.B) {
					const positions = 1024
					c := open(b, threads, Int8, "")
					spec := backend.AttentionSpec{Heads: 32, KVHeads: 8, HeadDim: 128, Scale: 0.01}
					kv, err := c.KV(backend.KVSpec{Heads: 8, HeadDim: 128, Context: positions, Type: kind})
					if err != nil {
						b.Fatal(err)
					}
					q, k, v, y := register(b, c, 256, 4096), register(b, c, 256, 1024), register(b, c, 256, 1024), register(b, c, 256, 4096)
					for pos := 0; pos < positions; pos += 256 {
						c.Attention(y, q, k, v, kv, pos, spec)
					}
					q, k, v, y = q.Head(rows), k.Head(rows), v.Head(rows), y.Head(rows)
					for b.Loop() {
						c.Attention(y, q, k, v, kv, positions-rows, spec)
					}
				})
			}
		}
	}
}
