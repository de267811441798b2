//go:build cgo

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
	"substrate/pkg/plane"
)

// paths lists the code paths that this machine can run.
func paths(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, path := range []string{"scalar", "avx512vnni"} {
		b, err := Open(Options{Threads: 1, ForcePath: path})
		if err != nil {
			t.Logf("not tested here: %v", err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		found = append(found, path)
	}
	return found
}

func config(o Options) backendtest.Config {
	return backendtest.Config{
		Open:     func() (backend.Backend, error) { return Open(o) },
		Rounding: 0x1p-20,
		Int8:     o.Activations == Int8,
	}
}

func configs(t testing.TB, threads int) []backendtest.Config {
	t.Helper()
	var all []backendtest.Config
	for _, path := range paths(t) {
		for _, activations := range []string{Int8, F32} {
			all = append(all, config(Options{Threads: threads, Activations: activations, ForcePath: path}))
		}
	}
	return all
}

func TestConformance(t *testing.T) {
	for _, path := range paths(t) {
		for _, activations := range []string{Int8, F32} {
			for _, threads := range []int{1, 3} {
				o := Options{Threads: threads, Activations: activations, ForcePath: path}
				t.Run(fmt.Sprintf("%s_%s_%d", path, activations, threads), func(t *testing.T) { backendtest.Run(t, config(o)) })
			}
		}
	}
}

func FuzzProducts(f *testing.F)  { backendtest.FuzzProducts(f, configs(f, 2)...) }
func FuzzAttention(f *testing.F) { backendtest.FuzzAttention(f, configs(f, 2)...) }
func FuzzExperts(f *testing.F)   { backendtest.FuzzExperts(f, configs(f, 2)...) }

// step is an op of every kind, on registers and weights of a small model.
type step struct {
	backend.Backend
	x, y, h, q, kv, out backend.Tensor
	coded, dense        *backend.Linear
	norm                backend.Vector
	cache               backend.KV
	freqs               []float32
	ids                 []int32
	weights, logits     []float32
	calls               []backend.ExpertCall
	dsts                [2]backend.Tensor
	ws                  [2]*backend.Linear
}

const (
	stepRows = 9
	stepDim  = 256
)

// newStep opens a backend and fills it.
func newStep(t testing.TB, o Options) *step {
	t.Helper()
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := &step{Backend: b}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		to   *backend.Tensor
		rows int
	}{{&s.x, stepRows}, {&s.y, stepRows}, {&s.h, stepRows}, {&s.q, stepRows}, {&s.kv, stepRows}, {&s.out, 2 * stepRows}} {
		*r.to, err = b.Tensor(r.rows, stepDim)
		must(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	slab, err := b.Alloc(1 << 20)
	must(err)
	t.Cleanup(slab.Free)
	mem := slab.Bytes()
	for i := range mem[:512<<10] {
		mem[i] = byte(rng.Uint32())
	}
	values := make([]float32, 64<<10)
	for i := range values {
		values[i] = float32(rng.NormFloat64()) / 16
	}
	plane.BF16.Encode(mem[512<<10:], values) // dense, scales, biases
	plane.EncodeFloat32(mem[768<<10:], values[:stepDim])
	linear := func(f plane.Format) *backend.Linear {
		m, err := b.Matrix(slab, backend.MatrixSpec{Rows: stepDim, Cols: stepDim, Format: f, Data: 512 << 10 * int64(f.Bits/16), Scales: 512 << 10, Biases: 544 << 10})
		must(err)
		return &backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{m}}
	}
	s.coded, s.dense = linear(plane.Format{Bits: 4, Group: 64}), linear(plane.Format{Bits: 16})
	s.norm, err = b.Vector(slab, 768<<10, stepDim)
	must(err)
	s.cache, err = b.KV(backend.KVSpec{Heads: 4, HeadDim: 64, Context: 64, Type: "f16"})
	must(err)
	s.freqs = values[:32]
	s.ids, s.weights, s.logits = make([]int32, 2*stepRows), make([]float32, 2*stepRows), make([]float32, stepDim)
	s.calls = []backend.ExpertCall{{Gate: s.coded, Up: s.coded, Down: s.coded}, {Gate: s.coded, Up: s.dense, Down: s.coded}}
	for i := range int32(stepRows) {
		for j := range s.calls {
			c := &s.calls[j]
			c.InRows, c.OutRows = append(c.InRows, i), append(c.OutRows, 2*i+int32(j))
		}
	}
	s.dsts, s.ws = [2]backend.Tensor{s.h, s.q}, [2]*backend.Linear{s.coded, s.dense}
	return s
}

// run runs one op of every kind; the result is in logits.
func (s *step) run() error {
	s.Embed(s.x, s.ids[:stepRows], s.dense)
	s.RMSNorm(s.y, s.x, s.norm, 1e-5)
	s.Linears(s.dsts[:], s.y, s.ws[:])
	s.Linear(s.kv, s.y, s.coded)
	s.RoPE(s.q, 64, 3, s.freqs)
	s.Attention(s.h, s.q, s.kv, s.kv, s.cache, 0, backend.AttentionSpec{Heads: 4, KVHeads: 4, HeadDim: 64, Scale: 0.1})
	s.Add(s.x, s.h)
	s.SwiGLU(s.q, s.x, s.h)
	if err := s.Route(s.ids, s.weights, s.q, s.dense, backend.RouteSpec{TopK: 2, Norm: true}); err != nil {
		return err
	}
	s.Experts(s.out, s.x, s.calls)
	s.Combine(s.x, s.out, s.weights, 2)
	s.Take(s.y.Head(1), s.x, stepRows-1)
	clear(s.ids)
	if err := s.Logits(s.logits, s.y.Head(1), 0); err != nil {
		return err
	}
	return s.Sync()
}

func TestNoAllocation(t *testing.T) {
	for _, path := range paths(t) {
		s := newStep(t, Options{Threads: 2, ForcePath: path})
		if n := testing.AllocsPerRun(20, func() {
			if err := s.run(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: a step allocates %v times", path, n)
		}
	}
}

// The number of threads changes no bit.
func TestThreads(t *testing.T) {
	for _, path := range paths(t) {
		for _, activations := range []string{Int8, F32} {
			var want []float32
			for _, threads := range []int{1, 2, 5} {
				s := newStep(t, Options{Threads: threads, Activations: activations, ForcePath: path})
				for range 20 { // a race would not lose every time
					if err := s.run(); err != nil {
						t.Fatal(err)
					}
					if want == nil {
						want = slices.Clone(s.logits)
					}
					if !slices.Equal(s.logits, want) {
						t.Fatalf("%s, %s: %d threads give other bits than 1", path, activations, threads)
					}
				}
			}
		}
	}
}

// Kernels read no byte behind a matrix: its planes end where memory ends.
func TestNoReadBehindEnd(t *testing.T) {
	const rows, cols = 19, 384
	guarded := func(n int64) []byte {
		page := int64(os.Getpagesize())
		size := (n + page - 1) &^ (page - 1)
		mem, err := unix.Mmap(-1, 0, int(size+page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(mem) })
		if err := unix.Mprotect(mem[size:], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		return mem[size-n : size : size]
	}
	for _, path := range paths(t) {
		for _, activations := range []string{Int8, F32} {
			o, err := Open(Options{Threads: 1, Activations: activations, ForcePath: path})
			if err != nil {
				t.Fatal(err)
			}
			b := o.(*Backend)
			t.Cleanup(func() { b.Close() })
			for _, bits := range []int{2, 3, 4, 5, 6, 8, 16, 32} {
				for _, group := range []int{32, 64, 128} {
					f := plane.Format{Bits: bits, Group: group}
					if !f.Coded() {
						f.Group = 0
					}
					// Make the handle in ordinary memory, then move its planes.
					size := f.DataBytes(rows, cols) + 128 + 2*f.ScaleBytes(rows, cols)
					s, err := b.Alloc(size + 128)
					if err != nil {
						t.Fatal(err)
					}
					m, err := b.Matrix(s, backend.MatrixSpec{Rows: rows, Cols: cols, Format: f})
					if err != nil {
						t.Fatal(err)
					}
					s.Free()
					c := b.matrices[m.ID-1]
					setPointer(&c.data, guarded(f.DataBytes(rows, cols)))
					if f.Coded() {
						setPointer(&c.scales, guarded(f.ScaleBytes(rows, cols)))
						setPointer(&c.biases, guarded(f.ScaleBytes(rows, cols)))
					}
					w := &backend.Linear{N: 1, Parts: [backend.MaxParts]backend.Matrix{m}}
					for _, tokens := range []int{1, 2, 4, 9} {
						x, err := b.Tensor(tokens, cols)
						if err != nil {
							t.Fatal(err)
						}
						y, err := b.Tensor(tokens, rows)
						if err != nil {
							t.Fatal(err)
						}
						b.Linear(y, x, w)
						b.Embed(x.Head(1), []int32{rows - 1}, w)
					}
					if err := b.Sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

func setPointer[T any](p **T, mem []byte) { *p = (*T)(pointer(mem)) }

// What Overhead reports is what the process grows by.
func TestOverheadIsMeasured(t *testing.T) {
	before := resident(t)
	o, err := Open(Options{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := o.Tensor(300, 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := o.KV(backend.KVSpec{Heads: 8, HeadDim: 128, Context: 4096, Type: "f32"}); err != nil {
		t.Fatal(err)
	}
	slab, err := o.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer slab.Free()
	for range 5000 {
		if _, err := o.Matrix(slab, backend.MatrixSpec{Rows: 8, Cols: 8192, Format: plane.Format{Bits: 4, Group: 64}, Scales: 512 << 10, Biases: 768 << 10}); err != nil {
			t.Fatal(err)
		}
	}
	grown, reported := resident(t)-before-1<<20, o.Overhead()
	// Stacks are touched only in part; the Go runtime allocates meanwhile.
	if grown > reported+2<<20 || grown < reported-2*backend.ScratchStack-1<<20 {
		t.Errorf("the process grew by %d bytes, reported are %d", grown, reported)
	}
}

// resident is the anonymous memory of this process in bytes, without what the
// Go runtime could give back.
func resident(t *testing.T) int64 {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc")
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestClose(t *testing.T) {
	count := func() int {
		dir, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(dir)
	}
	open := func() backend.Backend {
		b, err := Open(Options{Threads: 9})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := open().Close(); err != nil { // lets the Go runtime start its own
		t.Fatal(err)
	}
	before, memory := count(), resident(t)
	for range 10 {
		b := open()
		x, err := b.Tensor(1000, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.Add(x, x)
		if b.Sync() == nil {
			t.Error("an op on a closed backend left no error")
		}
		if err := b.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
	if after := count(); after > before+4 {
		t.Errorf("%d threads before, %d after", before, after)
	}
	if after := resident(t); after > memory+4<<20 {
		t.Errorf("%d bytes before, %d after", memory, after)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Threads: -1}, {Threads: 1000}, {Activations: "int4"}, {ForcePath: "sse"}} {
		if b, err := Open(o); err == nil {
			b.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

// Both halves of a path's elementwise ops are the same C, so the paths agree
// bit for bit there.
func TestPathsAgree(t *testing.T) {
	all := paths(t)
	if len(all) < 2 {
		t.Skip("one path only")
	}
	results := make([][]float32, len(all))
	for i, path := range all {
		b, err := Open(Options{Threads: 1, ForcePath: path})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		values := make([]float32, 3*100)
		for j := range values {
			values[j] = float32(math.Sin(float64(j))) * 20
		}
		x, _ := b.Tensor(3, 100)
		y, _ := b.Tensor(3, 100)
		b.Load(x, values)
		b.Load(y, values)
		b.SwiGLU(x, x, y)
		b.Add(x, y)
		b.RoPE(x, 20, 5, values[:10])
		out := make([]float32, 100)
		for r := range 3 {
			if err := b.Logits(out, x, r); err != nil {
				t.Fatal(err)
			}
			results[i] = append(results[i], out...)
		}
	}
	if !slices.Equal(results[0], results[1]) {
		t.Error("scalar and avx512vnni differ in elementwise ops")
	}
}
