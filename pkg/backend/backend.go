// Package backend defines the small set of operations that every model family
// is written against. Three implementations exist: ref (pure Go, float32, the
// oracle), cpu (C intrinsics, the default on Linux) and mlx (a C++ shim, the
// default on Apple Silicon).
//
// The interface fits eager CPU kernels and MLX's lazy graphs alike:
//
//   - Activations are registers, not values. An op overwrites its destination
//     register; a lazy backend stores the new graph node there and drops the
//     old one, so that temporaries die without finalizers and a step of an
//     eager backend allocates nothing.
//   - Weights are views of slabs. The backend allocates a slab, the caller
//     fills its bytes by pread, the kernels read the same memory: nothing is
//     copied in between. The caller may overwrite bytes of a slab only after
//     Sync returned, or after a call that returns values to the host.
//   - Ops report no errors. The first failure sticks and every later op does
//     nothing; Sync, Route and Logits return it with the name of the op.
//   - All methods are called by one goroutine, the one that opened the
//     backend, locked to its OS thread by a backend that needs that. Only the
//     bytes of slabs may be written from elsewhere.
package backend

import "substrate/pkg/plane"

// Tensor is a register of float32 activations, row-major [Rows, Cols]. Head
// gives a register that shares its first rows. An op that writes them leaves
// the rest undefined.
type Tensor struct {
	ID   int32
	Rows int
	Cols int
}

// Head returns the first rows of t.
func (t Tensor) Head(rows int) Tensor { t.Rows = rows; return t }

// Matrix is a weight matrix [Rows, Cols] in a slab, as the backend's handle.
// The zero Matrix is no matrix.
type Matrix struct {
	ID   int32
	Rows int // outputs
	Cols int // inputs
}

// Vector is a float32 weight vector in a slab. The zero Vector is none.
type Vector struct {
	ID  int32
	Len int
}

// KV is the key and value cache of one layer.
type KV struct{ ID int32 }

// MaxParts is the largest number of records that add up to one level.
const MaxParts = 3

// Linear is y = sum of x*Parts[i]^T + Bias: a skeleton and its residuals.
type Linear struct {
	Parts [MaxParts]Matrix
	N     int // parts in use
	Bias  Vector
}

// Slab is memory that kernels read weights from.
type Slab interface {
	// Bytes is the slab's memory, aligned to 16 KiB. It stays at its address
	// until Free.
	Bytes() []byte
	Free()
}

// MatrixSpec says how a matrix lies in a slab. Offsets are from the slab's
// start and at least 64-byte aligned.
type MatrixSpec struct {
	Rows, Cols int
	Format     plane.Format
	Data       int64 // codes, or dense values
	Scales     int64 // [Rows][Cols/Group], where coded
	Biases     int64
}

// KVSpec is the shape of one layer's cache.
type KVSpec struct {
	Heads   int
	HeadDim int
	Context int
	Type    string // "f32", "f16"
	// Latent, if not 0, says that values are not kept: a value is the first
	// Latent numbers of its key.
	Latent int
}

// AttentionSpec is the shape of scaled dot-product attention.
type AttentionSpec struct {
	Heads   int
	KVHeads int
	HeadDim int
	Scale   float32
	Window  int // a query sees this many positions up to its own; 0: all
	// Sinks, if any, has a logit for each head that takes part in softmax and
	// has no value.
	Sinks Vector
}

// RouteSpec says how a router picks experts: softmax over all logits, the
// TopK largest (ties: the lower index), renormalised to sum 1 if Norm, times
// Scale. With Groups, only the experts of the TopGroups groups with the
// largest logits are chosen from, where neighbours make a group.
type RouteSpec struct {
	TopK      int
	Norm      bool
	Scale     float32 // 0: 1
	Groups    int     // 0: no groups
	TopGroups int
}

// ExpertCall runs one expert on some rows: Out[OutRows[i]] =
// down(act(gate(x[InRows[i]]), up(x[InRows[i]]))).
type ExpertCall struct {
	Gate, Up, Down *Linear
	Act            Activation
	InRows         []int32
	OutRows        []int32
}

// Feature is a part of the interface that not every backend has.
type Feature string

// The features.
const (
	Sinks      Feature = "attention sinks"
	Latents    Feature = "latent attention" // KVSpec.Latent, HeadLinear and Concat
	ClampedGLU Feature = "clamped SwiGLU"   // ExpertCall.Act with a limit
)

// Partial is a backend that lacks features. What it lacks is an error of the
// op.
type Partial interface {
	Backend
	Lacks(Feature) bool
}

// Based is a backend that takes memory of its own, before any handle is made
// and during ops, which ScratchBytes does not count.
type Based interface {
	Backend
	BaseBytes() int64
}

// Memory is what a backend's own allocator holds, in bytes: slabs, registers
// and caches in use, freed buffers that it keeps, the most ever in use.
type Memory struct {
	Active, Cache, Peak int64
}

// Metered is a backend that has an allocator of its own.
type Metered interface {
	Backend
	// Memory reads its counters; resetPeak begins a new peak. It waits for
	// nothing.
	Memory(resetPeak bool) (Memory, error)
}

// Backend runs ops. Registers of one op must not overlap unless it says so.
type Backend interface {
	// Name is "ref", "cpu" or "mlx"; Path names the code path chosen at run
	// time, such as "avx512vnni" or "scalar". Both are part of what decides
	// the output's bits.
	Name() string
	Path() string

	// Alloc returns a slab of at least bytes. Its pages are mapped and
	// touched, so that running out of memory shows here.
	Alloc(bytes int64) (Slab, error)
	// Matrix, Vector, Tensor and KV make handles. They are made while a run
	// is set up, live until Close, and each costs the bytes that Overhead
	// reports beside its slab.
	Matrix(s Slab, spec MatrixSpec) (Matrix, error)
	Vector(s Slab, offset int64, n int) (Vector, error)
	Tensor(rows, cols int) (Tensor, error)
	KV(spec KVSpec) (KV, error)
	// Overhead is the memory held beside slabs: registers, caches, scratch.
	Overhead() int64

	// Embed sets dst[i] = row ids[i] of table.
	Embed(dst Tensor, ids []int32, table *Linear)
	// RMSNorm sets dst = x / sqrt(mean(x^2) + eps) * w over chunks of w.Len
	// columns: w.Len == x.Cols for a hidden state, the head size for q and k.
	// dst may be x.
	RMSNorm(dst, x Tensor, w Vector, eps float32)
	// Linear sets dst = w(x).
	Linear(dst, x Tensor, w *Linear)
	// Linears is several products of one input, for q, k, v and
	// gate, up: they share the input's preparation.
	Linears(dsts []Tensor, x Tensor, ws []*Linear)
	// HeadLinear sets, for every head h, dst_h = w_h(x_h): columns of x and of
	// dst are cut into heads, w holds a matrix for each, below each other.
	HeadLinear(dst, x Tensor, w *Linear, heads int)
	// Concat sets, for every head, dst_h to x_h followed by y_h.
	Concat(dst, x, y Tensor, heads int)
	// RoPE rotates every head of x in place; row i is at position pos+i.
	// freqs holds HeadDim/2 angles per position step (inverse frequencies).
	RoPE(x Tensor, headDim, pos int, freqs []float32)
	// Attention appends k, v (rows at positions pos..) to the cache, then
	// sets dst to causal attention of q over the cache up to each row's
	// position. A pos lower than the cache's length overwrites from there.
	// With a latent cache v is the zero Tensor, and dst has heads of
	// KVSpec.Latent columns.
	Attention(dst, q, k, v Tensor, cache KV, pos int, spec AttentionSpec)
	// SwiGLU sets dst = silu(gate) * up. dst may be gate.
	SwiGLU(dst, gate, up Tensor)
	// Add sets dst += x.
	Add(dst, x Tensor)
	// Take sets dst to the rows from, from+1, ... of x.
	Take(dst, x Tensor, from int)
	// Route computes router logits of x with w and returns, row-major
	// [x.Rows, TopK], the chosen experts in descending weight and their
	// weights. It waits for the device. The slices are the caller's.
	Route(ids []int32, weights []float32, x Tensor, w *Linear, spec RouteSpec) error
	// Experts runs calls, writing the rows of out that they name. Calls are
	// independent of each other: no result depends on how they are grouped.
	Experts(out, x Tensor, calls []ExpertCall)
	// Combine sets dst[t] += sum over j of weights[t*k+j] * y[t*k+j], summed
	// in the order of j.
	Combine(dst, y Tensor, weights []float32, k int)
	// Logits copies row of x to dst on the host. It waits for the device.
	Logits(dst []float32, x Tensor, row int) error
	// Load sets a register from host values, row-major.
	Load(dst Tensor, values []float32)
	// Sync waits for every op so far and returns the first failure, which it
	// clears.
	Sync() error
	// Close frees everything but slabs.
	Close() error
}
