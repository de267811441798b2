package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"substrate/internal/faultfs"
	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// TestMain makes the test binary a writer of stores that can be killed, if
// the environment says so.
func TestMain(m *testing.M) {
	path := os.Getenv("STORE_TEST_WRITE")
	if path == "" {
		os.Exit(m.Run())
	}
	if err := writeSlowly(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// slowSource takes a moment to read, so that a kill meets any stage.
type slowSource struct{ *model.Model }

func (s slowSource) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	time.Sleep(300 * time.Microsecond)
	return s.Model.ReadRows(dst, t, row, rows)
}

func writeSlowly(path string) error {
	m, err := model.Open(moeModel)
	if err != nil {
		return err
	}
	var t testing.T // never failed: the plan is known to be valid
	b, err := store.NewBuild(spec(&t, m, makePlan(&t, m.Profile(), mixed, nil)))
	if err != nil {
		return err
	}
	opt := options(m)
	opt.Source = slowSource{m}
	fmt.Println("writing")
	_, err = b.Write(context.Background(), path, opt)
	return err
}

// reference is the contents of the store that tests of interruptions write.
func reference(t *testing.T, m *model.Model, b *store.Build) map[string]string {
	path := filepath.Join(t.TempDir(), "reference.sb")
	write(t, b, path, options(m))
	return folder(t, path)
}

// checkWhole checks that at path is no store or a whole one.
func checkWhole(t *testing.T, path string, want map[string]string) {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	sameFolders(t, folder(t, path), want)
}

func TestKill(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	want := reference(t, m, b)
	rng := rand.New(rand.NewPCG(5, 6))
	kept := 0
	for range 8 {
		path := filepath.Join(t.TempDir(), "m.sb")
		for range 3 { // kill, go on, kill again
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "STORE_TEST_WRITE="+path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out.Read(make([]byte, 1)) // it begins to write
			time.Sleep(time.Duration(rng.Int64N(int64(80 * time.Millisecond))))
			cmd.Process.Kill()
			cmd.Wait()
			checkWhole(t, path, want)
		}
		journal, _ := os.ReadFile(filepath.Join(path+".partial", "journal.jsonl"))
		kept += max(0, strings.Count(string(journal), "\n")-1)
		write(t, b, path, options(m))
		sameFolders(t, folder(t, path), want)
	}
	if kept == 0 {
		t.Error("no interrupted build had a record to keep: the test tests nothing")
	}
	t.Logf("%d records kept", kept)
}

// countingSource counts what is read of the model.
type countingSource struct {
	*model.Model
	rows int
}

func (s *countingSource) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	s.rows += rows
	return s.Model.ReadRows(dst, t, row, rows)
}

// Records that are whole are not fitted again, those that are damaged are.
func TestResume(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	want := reference(t, m, b)
	path := filepath.Join(t.TempDir(), "m.sb")
	attempt := func(stopAfter int) (rows int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		source := &countingSource{Model: m}
		opt := options(m)
		opt.Source, opt.Threads = source, 1
		done := 0
		opt.Progress = func(string, int64) {
			if done++; done == stopAfter {
				cancel()
			}
		}
		_, err := b.Write(ctx, path, opt)
		if stopped := errors.Is(err, context.Canceled); err != nil && !stopped || stopped != (stopAfter > 0) {
			t.Fatalf("stopped after %d records: %v", stopAfter, err)
		}
		return source.rows
	}
	first := attempt(b.Records() / 2)
	second := attempt(b.Records()/2 + 3)
	if first == 0 || second == 0 || second > first/2 {
		t.Errorf("read %d rows for half of the records, then %d for three more", first, second)
	}
	// Damage one record that the journal takes for whole.
	damaged := filepath.Join(path+".partial", "tensors", "embedding.skeleton.bin")
	data, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	if err := os.WriteFile(damaged, data, 0o666); err != nil {
		t.Fatal(err)
	}
	attempt(0)
	sameFolders(t, folder(t, path), want)

	// A build of other inputs starts over.
	if err := os.Rename(path, path+".partial"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+".partial", "journal.jsonl"), []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	opt := options(m)
	var notes []string
	opt.Note = func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	write(t, b, path, opt)
	sameFolders(t, folder(t, path), want)
	if len(notes) != 1 || !strings.Contains(notes[0], "was of other inputs: started over") {
		t.Errorf("notes %q", notes)
	}
}

// Whatever call fails, whatever was not synced: no bad store, and the next
// attempt makes the right one.
func TestFaults(t *testing.T) {
	m := openModel(t, denseModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), quick, nil)))
	want := reference(t, m, b)
	count := faultfs.New(vfs.OS{})
	opt := options(m)
	opt.FS = count
	write(t, b, filepath.Join(t.TempDir(), "m.sb"), opt)
	calls := count.Calls()
	if calls < 50 {
		t.Fatalf("only %d calls of the file system: the test tests little", calls)
	}
	t.Logf("%d calls", calls)
	for _, c := range []struct {
		name     string
		sticky   bool
		powerCut bool
		step     int
	}{{"one call", false, false, 1}, {"full disk", true, false, 4}, {"power cut", true, true, 3}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for n := 1; n <= calls; n += c.step {
				path := filepath.Join(dir, fmt.Sprint(n), "m.sb")
				if err := os.Mkdir(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				fault := faultfs.New(vfs.OS{})
				fault.FailAt(n, faultfs.NoSpace, c.sticky)
				opt.FS = fault
				_, err := b.Write(context.Background(), path, opt)
				if err == nil {
					t.Errorf("call %d failed, and Write did not tell", n)
				} else if !errors.Is(err, faultfs.NoSpace) {
					t.Errorf("call %d: error %v hides its cause", n, err)
				}
				if c.powerCut {
					if err := fault.PowerCut(); err != nil {
						t.Fatal(err)
					}
				}
				checkWhole(t, path, want)
				opt.FS = faultfs.New(vfs.OS{})
				write(t, b, path, opt)
				sameFolders(t, folder(t, path), want)
				if t.Failed() {
					t.Fatalf("at call %d of %d", n, calls)
				}
				os.RemoveAll(filepath.Dir(path))
			}
		})
	}
}

// Damage of any file is found: by Open or by Verify.
func TestDamage(t *testing.T) {
	m := openModel(t, denseModel)
	s := spec(t, m, makePlan(t, m.Profile(), mixed, nil))
	s.Compress = true
	path := filepath.Join(t.TempDir(), "m.sb")
	write(t, newBuild(t, s), path, options(m))
	whole := folder(t, path)
	check := func(what string) {
		t.Helper()
		st, err := store.Open(path)
		if err != nil {
			return
		}
		damage, err := st.Verify(context.Background(), nil)
		if err == nil && len(damage) == 0 {
			t.Errorf("%s: not found", what)
		}
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for name, content := range whole {
		file := filepath.Join(path, filepath.FromSlash(name))
		if content == "" {
			continue
		}
		for range 4 {
			b := []byte(content)
			at := rng.IntN(len(b))
			b[at] ^= byte(1 + rng.IntN(255))
			os.WriteFile(file, b, 0o666)
			check(fmt.Sprintf("%s: byte %d changed", name, at))
			os.WriteFile(file, []byte(content[:at]), 0o666)
			check(fmt.Sprintf("%s: cut at %d", name, at))
		}
		os.WriteFile(file, []byte(content+"x"), 0o666)
		check(name + ": a byte more")
		os.Remove(file)
		check(name + ": removed")
		os.Symlink("/dev/zero", file)
		check(name + ": a link")
		os.Remove(file)
		os.WriteFile(file, []byte(content), 0o666)
	}
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if damage, err := st.Verify(context.Background(), nil); err != nil || len(damage) > 0 {
		t.Errorf("put together again: %v, %v", damage, err)
	}
}
