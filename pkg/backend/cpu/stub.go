//go:build !cgo

package cpu

import (
	"errors"

	"substrate/pkg/backend"
)

// Built reports whether this program has the kernels.
const Built = false

// Open fails: this program was built without C.
func Open(o Options) (backend.Backend, error) {
	return nil, errors.New("this program was built with CGO_ENABLED=0 and has no C kernels; use --backend ref")
}

// GEMM is the plain one.
func GEMM(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k int) {
	backend.PlainGEMM(c, ldc, a, lda, b, ldb, m, n, k)
}
