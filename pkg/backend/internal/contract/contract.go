// Package contract checks handles and shapes, the same way for every backend:
// what passes here is safe to compute without looking again.
package contract

import (
	"fmt"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// Bounds that no real model comes near. They keep products of sizes inside 64
// bits and the indices of C kernels inside 32.
const (
	maxDim      = 1 << 24
	maxElements = 1 << 40
	maxHandles  = 1 << 24
	maxHeadDim  = 1024
	maxExperts  = 1 << 14
	maxGroups   = 64 // of experts
)

// MatrixAlign is the alignment of matrices and vectors in a slab.
const MatrixAlign = 64

// Table holds the shapes of the handles that a backend gave out. Handle n is
// entry n-1 of a list, so that the zero handle is none. Its methods named
// like ops check an op's arguments.
type Table struct {
	tensors  []backend.Tensor
	matrices []shape
	vectors  []int
	caches   []cache

	// written[row] == stamp: row is named by a call of the Experts at hand.
	written []uint32
	stamp   uint32
}

type shape struct{ rows, cols int32 }

type cache struct {
	spec   backend.KVSpec
	length int
}

// AddTensor notes a register.
func (t *Table) AddTensor(rows, cols int) (backend.Tensor, error) {
	if rows < 1 || cols < 1 || rows > maxDim || cols > maxDim || int64(rows)*int64(cols) > maxElements {
		return backend.Tensor{}, fmt.Errorf("register of shape [%d, %d]: not a size", rows, cols)
	}
	if len(t.tensors) >= maxHandles {
		return backend.Tensor{}, fmt.Errorf("more than %d registers", maxHandles)
	}
	r := backend.Tensor{ID: int32(len(t.tensors) + 1), Rows: rows, Cols: cols}
	t.tensors = append(t.tensors, r)
	if rows > len(t.written) {
		t.written = make([]uint32, rows)
	}
	return r, nil
}

// AddMatrix notes a matrix of a slab and returns its planes.
func (t *Table) AddMatrix(slab []byte, spec backend.MatrixSpec) (backend.Matrix, plane.Matrix, error) {
	m, err := t.addMatrix(slab, spec)
	if err != nil {
		return backend.Matrix{}, plane.Matrix{}, fmt.Errorf("matrix [%d, %d]: %w", spec.Rows, spec.Cols, err)
	}
	t.matrices = append(t.matrices, shape{int32(spec.Rows), int32(spec.Cols)})
	return backend.Matrix{ID: int32(len(t.matrices)), Rows: spec.Rows, Cols: spec.Cols}, m, nil
}

func (t *Table) addMatrix(slab []byte, spec backend.MatrixSpec) (plane.Matrix, error) {
	none := plane.Matrix{}
	if spec.Rows < 1 || spec.Cols < 1 || spec.Rows > maxDim || spec.Cols > maxDim || int64(spec.Rows)*int64(spec.Cols) > maxElements {
		return none, fmt.Errorf("not a size")
	}
	if err := spec.Format.Check(); err != nil {
		return none, err
	}
	if err := spec.Format.Fits(spec.Cols); err != nil {
		return none, err
	}
	if len(t.matrices) >= maxHandles {
		return none, fmt.Errorf("more than %d matrices", maxHandles)
	}
	m := plane.Matrix{Rows: spec.Rows, Cols: spec.Cols, Format: spec.Format}
	var err error
	if m.Data, err = cut(slab, "data", spec.Data, spec.Format.DataBytes(spec.Rows, spec.Cols)); err != nil {
		return none, err
	}
	if spec.Format.Coded() {
		size := spec.Format.ScaleBytes(spec.Rows, spec.Cols)
		if m.Scales, err = cut(slab, "scales", spec.Scales, size); err != nil {
			return none, err
		}
		if m.Biases, err = cut(slab, "biases", spec.Biases, size); err != nil {
			return none, err
		}
	}
	return m, nil
}

func cut(slab []byte, what string, offset, size int64) ([]byte, error) {
	if offset < 0 || offset > int64(len(slab)) || size > int64(len(slab))-offset {
		return nil, fmt.Errorf("%s at %d of %d bytes: outside a slab of %d", what, offset, size, len(slab))
	}
	if offset%MatrixAlign != 0 {
		return nil, fmt.Errorf("%s at %d: not aligned to %d bytes", what, offset, MatrixAlign)
	}
	return slab[offset : offset+size : offset+size], nil
}

// AddVector notes a vector of a slab and returns its bytes.
func (t *Table) AddVector(slab []byte, offset int64, n int) (backend.Vector, []byte, error) {
	if n < 1 || n > maxDim || len(t.vectors) >= maxHandles {
		return backend.Vector{}, nil, fmt.Errorf("vector of %d: not a size", n)
	}
	data, err := cut(slab, "data", offset, 4*int64(n))
	if err != nil {
		return backend.Vector{}, nil, fmt.Errorf("vector of %d: %w", n, err)
	}
	t.vectors = append(t.vectors, n)
	return backend.Vector{ID: int32(len(t.vectors)), Len: n}, data, nil
}

// AddKV notes a cache.
func (t *Table) AddKV(spec backend.KVSpec) (backend.KV, error) {
	if spec.Type != "f32" && spec.Type != "f16" {
		return backend.KV{}, fmt.Errorf("KV cache of type %q: want f32 or f16", spec.Type)
	}
	if spec.Heads < 1 || spec.HeadDim < 1 || spec.Context < 1 || spec.HeadDim > maxHeadDim || spec.Heads > maxDim || spec.Context > maxDim ||
		int64(spec.Heads)*int64(spec.HeadDim)*int64(spec.Context) > maxElements || len(t.caches) >= maxHandles {
		return backend.KV{}, fmt.Errorf("KV cache of %d heads of %d for %d positions: not a size (heads have at most %d values)", spec.Heads, spec.HeadDim, spec.Context, maxHeadDim)
	}
	if spec.Latent < 0 || spec.Latent > spec.HeadDim {
		return backend.KV{}, fmt.Errorf("KV cache with values of %d numbers of keys of %d", spec.Latent, spec.HeadDim)
	}
	t.caches = append(t.caches, cache{spec: spec})
	return backend.KV{ID: int32(len(t.caches))}, nil
}
