//go:build cgo

package mlx

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"substrate/pkg/backend"
)

// compile makes a shared library of a source, or skips the test.
func compile(t *testing.T, compiler, source string, flags ...string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "library.so")
	args := append([]string{"-shared", "-fPIC", "-Ishim", "-o", library, source}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v\n%s", compiler, err, out)
	}
	return library
}

// What is no shim, or one that does not fit, is an error that says so.
func TestOpenRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "library.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	fake := filepath.Join("testdata", "shim.c")
	for _, c := range []struct{ name, library, want string }{
		{"no file", filepath.Join(t.TempDir(), "libsbmlx.so"), "libsbmlx.so"},
		{"no library", text, "library.so"},
		{"no shim", compile(t, "cc", fake, "-DNO_TABLE"), "sbmlx_get_api"},
		{"another interface", compile(t, "cc", fake, "-DABI=1000"), "has interface 1000, this program wants"},
		{"a failing check", compile(t, "cc", fake, "-DABI=SBMLX_ABI"), "self-test failed"},
	} {
		b, err := Open(Options{Library: c.library})
		if err == nil {
			b.Close()
			t.Errorf("%s: opened", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestLibraryIsBesideTheProgram(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	_, err := Open(Options{})
	program, _ := os.Executable()
	want := filepath.Join(filepath.Dir(filepath.Dir(program)), "lib", "libsbmlx.")
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s named", err, want)
	}
}

// Another MLX than the shim was compiled with is refused: here one that says
// so, put before the real one.
func TestAnotherMLX(t *testing.T) {
	if os.Getenv("SB_TEST_ANOTHER_MLX") == "" {
		available(t)
		version := compile(t, "c++", filepath.Join("testdata", "version.cpp"))
		cmd := exec.Command(os.Args[0], "-test.run=^TestAnotherMLX$", "-test.v")
		cmd.Env = append(os.Environ(), "SB_TEST_ANOTHER_MLX=1", "LD_PRELOAD="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	b, err := Open(Options{})
	if err == nil {
		b.Close()
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), "was compiled for MLX 0.32.") || !strings.Contains(err.Error(), "and MLX 0.33.1 was loaded") {
		t.Error(err)
	}
}

// An error inside an evaluation arrives at the call that waits, and the
// backend goes on with what was not part of it.
func TestFailedEvaluation(t *testing.T) {
	k := start(t)
	kept, x, y := k.register(1, 4, 1), k.register(1, 4, 1), k.register(1, 4, 1)
	k.sync()
	values := make([]float32, 4)
	for _, wait := range []struct {
		op   string
		call func() error
	}{
		{"sync", k.Sync},
		{"logits", func() error { return k.Logits(values, y, 0) }},
	} {
		k.Load(y, []float32{1, 2, 3, 4})
		k.fail(x)
		k.Add(y, x)
		err := wait.call()
		if err == nil || !strings.HasPrefix(err.Error(), wait.op+": ") {
			t.Errorf("%s: %v", wait.op, err)
		}
		if _, ok := errors.AsType[*DeviceError](err); !ok {
			t.Errorf("%s: %v is no failure of the device", wait.op, err)
		}
		if wait.op != "sync" {
			if again := k.Sync(); again == nil || again.Error() != err.Error() {
				t.Errorf("sync after a failed %s: %v, want %v", wait.op, again, err)
			}
		}
		k.Add(kept, x)
		if lost := k.Sync(); lost == nil || !strings.Contains(lost.Error(), "add: register 2 was lost in an evaluation that failed") {
			t.Errorf("a register that took part: %v", lost)
		}
	}
	if got := k.row(kept, 0)[0]; got != 1 {
		t.Errorf("a register that took no part: %v, want 1", got)
	}
	k.Load(y, []float32{1, 2, 3, 4})
	if got := k.row(y, 0)[3]; got != 4 {
		t.Errorf("a register that took part, loaded anew: %v, want 4", got)
	}
}

// A cache that took part in a failed evaluation is empty, not garbage.
func TestFailedCache(t *testing.T) {
	k := start(t)
	kv, err := k.KV(backend.KVSpec{Heads: 1, HeadDim: 4, Context: 8, Type: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	q, key, v, y := k.register(1, 4, 1), k.register(1, 4, 1), k.register(1, 4, 1), k.register(1, 4, 0)
	spec := backend.AttentionSpec{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1}
	k.fail(key)
	k.Attention(y, q, key, v, kv, 0, spec)
	if err := k.Sync(); err == nil {
		t.Fatal("no error")
	}
	k.Load(q, make([]float32, 4))
	k.Load(key, make([]float32, 4))
	k.Load(v, []float32{6, 6, 6, 6})
	k.Attention(y, q, key, v, kv, 1, spec) // position 0 is zero
	if got := k.row(y, 0)[0]; got != 3 {
		t.Errorf("got %v, want the mean of 0 and 6", got)
	}
}

func TestRowsBeyondTheLastOp(t *testing.T) {
	k := start(t)
	x, y := k.register(3, 4, 1), k.register(3, 4, 1)
	k.Load(x.Head(1), make([]float32, 4))
	k.Add(y, x)
	err := k.Sync()
	if err == nil || !strings.Contains(err.Error(), "add: register 1 holds 1 rows since the last op, not 3") {
		t.Errorf("three rows of a register whose last op wrote one: %v", err)
	}
	if _, ok := errors.AsType[*DeviceError](err); ok {
		t.Error("a wrong call counts as a failure of the device")
	}
}

func TestClosed(t *testing.T) {
	available(t)
	b, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Tensor(1, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	b.Add(x, x)
	if err := b.Sync(); err == nil {
		t.Error("an op after Close left no error")
	}
	for _, err := range []error{
		b.Logits(make([]float32, 4), x, 0),
		func() error { _, err := b.Alloc(1); return err }(),
		func() error { _, err := b.Tensor(1, 1); return err }(),
		func() error { _, err := b.Matrix(s, backend.MatrixSpec{}); return err }(),
	} {
		if err == nil {
			t.Error("a call after Close succeeded")
		}
	}
	s.Bytes()[99] = 1 // a slab outlives its backend
	s.Free()
}

// Backends are independent of each other, on one thread and on several.
func TestSeveralBackends(t *testing.T) {
	available(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			a, b := start(t), start(t)
			x, y := a.register(1, 100, float32(i)), b.register(1, 100, 1)
			for range 50 {
				a.Add(x, x)
				b.Add(y, y)
				if got := b.row(y, 0); got[99] != 2 {
					t.Errorf("got %v, want 2", got[99])
				}
				b.Load(y, a.row(x, 0))
				b.Load(y, make([]float32, 100))
				b.Add(y, b.register(1, 100, 1))
			}
		})
	}
	wg.Wait()
}
