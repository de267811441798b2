//go:build cgo

package mlx

// #include "load.h"
import "C"

import (
	"unsafe"

	"substrate/pkg/backend"
)

// What only tests need; their files cannot use C.

// matrixAddress is where kernels read a matrix's codes.
func (b *Backend) matrixAddress(m backend.Matrix) unsafe.Pointer {
	return unsafe.Pointer(C.sb_mlx_matrix_address(b.api, b.engine, C.int32_t(m.ID)))
}

// kvAddress is where a cache's keys lie.
func (b *Backend) kvAddress(kv backend.KV) unsafe.Pointer {
	return unsafe.Pointer(C.sb_mlx_kv_address(b.api, b.engine, C.int32_t(kv.ID)))
}

// fail sets dst to the result of an op that fails when it is computed.
func (b *Backend) fail(dst backend.Tensor) {
	b.done("fail", C.sb_mlx_fail(b.api, b.engine, rows(dst)))
}
