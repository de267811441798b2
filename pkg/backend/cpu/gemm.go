//go:build cgo

package cpu

// #cgo nocallback sb_gemm
// #cgo noescape sb_gemm
// #include <stdlib.h>
// #include "cpu.h"
import "C"

import (
	"sync"
	"unsafe"

	"substrate/pkg/backend"
)

// GEMM is a backend.GEMM in C, for one thread.
func GEMM(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k int) {
	gemm(bestKernels(), c, ldc, a, lda, b, ldb, m, n, k)
}

// bestKernels are those that this processor can run.
var bestKernels = sync.OnceValue(func() *C.sb_kernels {
	path := C.CString("")
	defer C.free(unsafe.Pointer(path))
	return C.sb_find(path)
})

func gemm(kernels *C.sb_kernels, c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k int) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	// The last element of each matrix is inside its slice.
	_, _, _ = c[(m-1)*ldc+n-1], a[(m-1)*lda+k-1], b[(k-1)*ldb+n-1]
	C.sb_gemm(kernels, (*C.float)(&c[0]), C.int64_t(ldc), (*C.float)(&a[0]), C.int64_t(lda), (*C.float)(&b[0]), C.int64_t(ldb),
		C.int(m), C.int(n), C.int(k))
}

// gemmPaths are all implementations that this processor can run, by name.
func gemmPaths() map[string]backend.GEMM {
	best := bestKernels()
	paths := map[string]backend.GEMM{}
	for _, k := range []*C.sb_kernels{&C.sb_scalar, best} {
		paths[C.GoString(k.name)] = func(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k2 int) {
			gemm(k, c, ldc, a, lda, b, ldb, m, n, k2)
		}
	}
	return paths
}
