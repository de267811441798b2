//go:build cgo

package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"substrate/pkg/backend"
)

// Every path gives the bits of the plain twin, and touches nothing else.
func FuzzGEMM(f *testing.F) {
	f.Add(uint64(1), uint8(4), uint8(64), uint8(64))
	f.Add(uint64(2), uint8(7), uint8(83), uint8(5))
	f.Add(uint64(3), uint8(1), uint8(1), uint8(1))
	f.Add(uint64(4), uint8(0), uint8(9), uint8(9))
	f.Add(uint64(5), uint8(9), uint8(200), uint8(130))
	f.Fuzz(func(t *testing.T, seed uint64, rows, cols, terms uint8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m, n, k := int(rows), int(cols), int(terms)
		ldc, lda, ldb := n+rng.IntN(3), k+rng.IntN(3), n+rng.IntN(3)
		fill := func(size int) []float32 {
			v := make([]float32, size)
			for i := range v {
				v[i] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64()))
			}
			return v
		}
		c, a, b := fill(m*ldc+1), fill(m*lda+1), fill(k*ldb+1)
		want := append([]float32(nil), c...)
		backend.PlainGEMM(want, ldc, a, lda, b, ldb, m, n, k)
		for name, gemm := range gemmPaths() {
			got := append([]float32(nil), c...)
			gemm(got, ldc, a, lda, b, ldb, m, n, k)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: [%d, %d, %d] value %d: got %v, want %v", name, m, n, k, i, got[i], want[i])
				}
			}
		}
	})
}

func BenchmarkGEMM(b *testing.B) {
	const m, n, k = 64, 1024, 64
	c, x, y := make([]float32, m*n), make([]float32, m*k), make([]float32, k*n)
	for name, gemm := range gemmPaths() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				gemm(c, n, x, k, y, n, m, n, k)
			}
			b.ReportMetric(float64(b.N)*m*n*k/float64(b.Elapsed().Nanoseconds()), "GMAC/s")
		})
	}
}
