package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"substrate/pkg/store"
)

// A store that takes what it can from an older one has the same bytes as one
// that does not, and leaves that as it is.
func TestReuse(t *testing.T) {
	m := openModel(t, moeModel)
	s := spec(t, m, makePlan(t, m.Profile(), mixed, nil))
	plain := newBuild(t, s)
	s.Compress = true
	compressed := newBuild(t, s)
	part := newBuild(t, spec(t, m, makePlan(t, m.Profile(), partOfMixed, nil)))
	other := newBuild(t, spec(t, m, makePlan(t, m.Profile(), uniform(m2), nil)))
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".sb") }
	for _, c := range []struct {
		name         string
		build, older *store.Build
		linked       string // a file that is linked
		fitted       bool   // something is fitted anew
		reused       bool
	}{
		{"same", plain, plain, "tensors/block_1.experts.residual_1.bin", false, true},
		{"part", plain, part, "tensors/block_1.experts.skeleton.bin", true, true},
		{"other", plain, other, "", true, false},
		{"compressed", compressed, compressed, "tensors/embedding.skeleton.bin", false, true},
		{"decompress", plain, compressed, "", false, true},
		{"compress", compressed, plain, "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.build, path(c.name+"-want"), options(m))
			write(t, c.older, path(c.name+"-old"), options(m))
			old, err := store.Open(path(c.name + "-old"))
			if err != nil {
				t.Fatal(err)
			}
			before := folder(t, old.Path())
			source := &countingSource{Model: m}
			opt := options(m)
			opt.Source, opt.Reuse, opt.Threads = source, old, 1
			packed := write(t, c.build, path(c.name), opt)
			sameFolders(t, folder(t, path(c.name)), folder(t, path(c.name+"-want")))
			sameFolders(t, folder(t, old.Path()), before)
			if c.linked != "" {
				a, errA := os.Stat(filepath.Join(path(c.name), c.linked))
				b, errB := os.Stat(filepath.Join(old.Path(), c.linked))
				if errA != nil || errB != nil || !os.SameFile(a, b) {
					t.Errorf("%s is not linked", c.linked)
				}
			}
			if fitted := source.rows > 0; fitted != c.fitted {
				t.Errorf("%d rows of the model were read", source.rows)
			}
			if (packed.ReusedBytes > 0) != c.reused || packed.ReusedBytes > packed.Bytes {
				t.Errorf("%d of %d bytes re-used", packed.ReusedBytes, packed.Bytes)
			}
			if estimate := c.build.Reusable(old); (estimate > 0) != c.reused {
				t.Errorf("estimated that %d bytes can be re-used", estimate)
			}
		})
	}
}

// Damage of the older store does not come over, and other weights of the same
// shapes take nothing.
func TestReuseNothingBad(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	dir := t.TempDir()
	oldPath := filepath.Join(dir, "old.sb")
	write(t, b, oldPath, options(m))
	want := folder(t, oldPath)
	damaged := filepath.Join(oldPath, "tensors", "block_0.experts.skeleton.bin")
	data := []byte(want["tensors/block_0.experts.skeleton.bin"])
	data[100] ^= 1
	if err := os.WriteFile(damaged, data, 0o666); err != nil {
		t.Fatal(err)
	}
	old, err := store.Open(oldPath)
	if err != nil {
		t.Fatal(err)
	}
	opt := options(m)
	opt.Reuse = old
	var notes []string
	opt.Note = func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	packed := write(t, b, filepath.Join(dir, "new.sb"), opt)
	sameFolders(t, folder(t, filepath.Join(dir, "new.sb")), want)
	if len(notes) != 2 || !strings.Contains(notes[0], "block_0.experts.skeleton.bin: sha256 is") || !strings.Contains(notes[1], `record "block_0.expert_0.skeleton" at offset 0: crc32c`) {
		t.Errorf("notes %q", notes)
	}
	if packed.ReusedBytes == 0 {
		t.Error("nothing was re-used")
	}

	opt.Weights = func(context.Context) (string, error) { return strings.Repeat("0", 64), nil }
	if packed := write(t, b, filepath.Join(dir, "other.sb"), opt); packed.ReusedBytes != 0 {
		t.Errorf("%d bytes of other weights were re-used", packed.ReusedBytes)
	}
}

// A file that an interrupted run linked is not written to when the next run
// does not re-use.
func TestReuseInterrupted(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	dir := t.TempDir()
	old := olderStore(t, m, partOfMixed)
	before := folder(t, old.Path())
	path := filepath.Join(dir, "new.sb")
	ctx, cancel := context.WithCancel(context.Background())
	opt := options(m)
	opt.Reuse = old
	opt.Progress = func(string, int64) { cancel() }
	if _, err := b.Write(ctx, path, opt); err == nil {
		t.Fatal("not interrupted")
	}
	linked := filepath.Join(path+".partial", "tensors", "block_0.experts.skeleton.bin")
	if _, err := os.Stat(linked); err != nil {
		t.Fatal(err)
	}
	opt = options(m)
	opt.Source = slowSource{m}
	write(t, b, path, opt)
	sameFolders(t, folder(t, path), reference(t, m, b))
	sameFolders(t, folder(t, old.Path()), before)
	if a, _ := os.Stat(filepath.Join(path, "tensors", "block_0.experts.skeleton.bin")); a.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Error("a file of the new store is still the old one's")
	}
}
