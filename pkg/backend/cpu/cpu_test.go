//go:build cgo

package cpu

import (
	"fmt"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
)

func paths(t testing.TB) []string {
	var found []string
	for _, path := range []string{"scalar", "avx512vnni"} {
		b, err := Open(Options{Threads: 1, ForcePath: path})
		if err != nil {
			t.Logf("path %s: %v", path, err)
			continue
		}
		b.Close()
		found = append(found, path)
	}
	return found
}

func TestConformance(t *testing.T) {
	for _, path := range paths(t) {
		for _, activations := range []string{Int8, F32} {
			for _, threads := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s_%s_%d", path, activations, threads), func(t *testing.T) {
					backendtest.Run(t, backendtest.Config{
						Open: func() (backend.Backend, error) {
							return Open(Options{Threads: threads, Activations: activations, ForcePath: path})
						},
						Rounding: 0x1p-20,
						Int8:     activations == Int8,
					})
				})
			}
		}
	}
}
