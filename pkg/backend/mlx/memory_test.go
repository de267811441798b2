//go:build cgo

package mlx

import (
	"strings"
	"testing"
	"unsafe"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// Kernels read codes where the disk put them: the address is the slab's, and a
// product allocates no second matrix.
func TestCodesAreNotCopied(t *testing.T) {
	k := start(t)
	const rows, cols = 4096, 4096
	s := k.slab(codedBytes(rows, cols))
	m, spec := k.coded(s, rows, cols)
	if got, want := k.matrixAddress(m), unsafe.Pointer(&s.Bytes()[spec.Data]); got != want {
		t.Errorf("codes are read at %p, they lie at %p", got, want)
	}
	x, y := k.register(1, cols, 1), k.register(1, rows, 0)
	k.sync()
	before := k.memory(true)
	k.Linear(y, x, one(m))
	k.sync()
	// Scales and biases in float32, and the output.
	allowed := int64(rows*cols/64*8 + rows*4 + 64<<10)
	if grown := k.memory(false).Peak - before.Active; grown > allowed {
		t.Errorf("a product with a matrix of %d bytes allocated %d, more than %d", spec.Scales, grown, allowed)
	}
}

// The bytes of a slab may change after Sync; the next op sees all of them.
func TestSlabIsReadAnew(t *testing.T) {
	k := start(t)
	const rows, cols = 32, 128
	s := k.slab(codedBytes(rows, cols))
	m, spec := k.coded(s, rows, cols)
	x, y := k.register(1, cols, 1), k.register(1, rows, 0)
	for code := byte(1); code < 5; code++ {
		scale := float32(code) / 4
		fill(s, spec, code, scale)
		k.Linear(y, x, one(m))
		if got, want := k.row(y, 0)[3], cols*scale*float32(code); got != want {
			t.Errorf("codes %d, scale %v: got %v, want %v", code, scale, got, want)
		}
	}
}

// A large matrix is computed in blocks: dense 16-bit weights are never whole
// in float32.
func TestLargeMatrixInBlocks(t *testing.T) {
	k := start(t)
	const rows, cols = 20000, 512
	s := k.slab(rows * cols * 2)
	mem := s.Bytes()
	for r := range rows {
		mem[r*cols*2+1] = 0x3f // 0.5 in bf16, in the first column
		if r%2 == 1 {
			mem[r*cols*2] = 0x80 // 1.0
		}
	}
	m, err := k.Matrix(s, backend.MatrixSpec{Rows: rows, Cols: cols, Format: bf16()})
	if err != nil {
		t.Fatal(err)
	}
	x, y := k.register(3, cols, 2), k.register(3, rows, 0)
	k.sync()
	before := k.memory(true)
	k.Linear(y, x, one(m))
	k.sync()
	for i, got := range k.row(y, 2) {
		if want := float32(1 + i%2); got != want {
			t.Fatalf("output %d: got %v, want %v", i, got, want)
		}
	}
	whole := int64(rows * cols * 4)
	if grown := k.memory(false).Peak - before.Active; grown >= whole {
		t.Errorf("a product allocated %d bytes, the matrix in float32 has %d", grown, whole)
	}
}

func TestFreedSlab(t *testing.T) {
	k := start(t)
	const rows, cols = 2048, 2048
	before := k.memory(false)
	s := k.slab(64 << 20)
	m, _ := k.coded(s, rows, cols)
	v, err := k.Vector(s, 0, cols)
	if err != nil {
		t.Fatal(err)
	}
	x, y := k.register(1, cols, 1), k.register(1, rows, 0)
	k.Linear(y, x, one(m))
	k.sync()
	s.Free()
	if held := k.memory(false).Active - before.Active; held > 1<<20 {
		t.Errorf("a freed slab left %d bytes", held)
	}
	for _, c := range []struct {
		op   string
		call func()
	}{
		{"linear", func() { k.Linear(y, x, one(m)) }},
		{"embed", func() { k.Embed(x, []int32{0}, one(m)) }},
		{"rms_norm", func() { k.RMSNorm(x, x, v, 1) }},
	} {
		c.call()
		if err := k.Sync(); err == nil || !strings.Contains(err.Error(), c.op+": the slab of the ") {
			t.Errorf("%s with a freed slab: %v", c.op, err)
		}
	}
	if _, err := k.Matrix(s, backend.MatrixSpec{Rows: 1, Cols: 64, Format: bf16()}); err == nil {
		t.Error("a matrix in a freed slab was made")
	}
	s.Free() // does nothing
}

func TestOutOfMemory(t *testing.T) {
	k := start(t)
	before := k.memory(false)
	if _, err := k.Alloc(1 << 45); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a slab of 32 TiB: %v", err)
	}
	if _, err := k.KV(backend.KVSpec{Heads: 1 << 10, HeadDim: 1 << 10, Context: 1 << 20, Type: "f32"}); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a cache of 4 TiB: %v", err)
	}
	if after := k.memory(false); after.Active != before.Active {
		t.Errorf("%d bytes are in use, %d before", after.Active, before.Active)
	}
	x := k.register(1, 4, 1)
	k.Add(x, x)
	if got := k.row(x, 0); got[0] != 2 {
		t.Errorf("after that, 1+1 = %v", got[0])
	}
}

// A cache is written in place: a copy per token would be the context's size.
func TestCacheInPlace(t *testing.T) {
	k := start(t)
	const heads, dim, context = 2, 64, 1 << 14
	for _, kind := range []string{"f32", "f16"} {
		kv, err := k.KV(backend.KVSpec{Heads: heads, HeadDim: dim, Context: context, Type: kind})
		if err != nil {
			t.Fatal(err)
		}
		q, key, v, y := k.register(2, heads*dim, 1), k.register(2, heads*dim, 1), k.register(2, heads*dim, 1), k.register(2, heads*dim, 0)
		spec := backend.AttentionSpec{Heads: heads, KVHeads: heads, HeadDim: dim, Scale: 1}
		address := k.kvAddress(kv)
		size := backend.KVWidth(kind) * heads * dim * context
		before := k.memory(true)
		for pos := 0; pos < 20; pos += 2 {
			k.Attention(y, q, key, v, kv, pos, spec)
			k.sync()
		}
		if got := k.kvAddress(kv); got != address {
			t.Errorf("%s: the cache moved from %p to %p", kind, address, got)
		}
		if grown := k.memory(false).Peak - before.Active; grown > size/4 {
			t.Errorf("%s: ten steps allocated %d bytes, the cache has 2 x %d", kind, grown, size)
		}
	}
}

func bf16() plane.Format { return plane.Format{Bits: 16} }
