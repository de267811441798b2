package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"substrate/internal/faultfs"
	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// crashes is for the long form of these tests, which takes minutes:
//
//	go test ./pkg/store -run 'Kill|Faults|PowerCut' -v -crashes 200
var crashes = flag.Int("crashes", 0, "kill this many writers, fail this many calls, and cut the power a quarter as often; 0: a few of each")

// rounds is how often a test is to crash something.
func rounds(few, part int) int {
	if *crashes > 0 {
		return max(1, *crashes/part)
	}
	return few
}

// TestMain makes the test binary a writer of stores that can be killed, if
// the environment says so.
func TestMain(m *testing.M) {
	path := os.Getenv("STORE_TEST_WRITE")
	if path == "" {
		os.Exit(m.Run())
	}
	if err := writeSlowly(path, os.Getenv("STORE_TEST_REUSE")); err != nil {
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

func writeSlowly(path, reuse string) error {
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
	if reuse != "" {
		if opt.Reuse, err = store.Open(reuse); err != nil {
			return err
		}
	}
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

// olderStore is a store of a plan that shares some records with the build that
// tests interrupt: some files are the same, of others a part.
func olderStore(t *testing.T, m *model.Model, first func(*doc.Op) ladder) *store.Store {
	path := filepath.Join(t.TempDir(), "old.sb")
	write(t, newBuild(t, spec(t, m, makePlan(t, m.Profile(), first, nil))), path, options(m))
	old, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// checkWhole checks that at path is no store or a whole one, and reports which.
func checkWhole(t *testing.T, path string, want map[string]string) bool {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	sameFolders(t, folder(t, path), want)
	return true
}

func TestKill(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	want := reference(t, m, b)
	old := olderStore(t, m, partOfMixed)
	oldFiles := folder(t, old.Path())
	rng := rand.New(rand.NewPCG(5, 6))
	kept, kills, finished := 0, 0, 0
	longest := 80 * time.Millisecond // until a kill: adapts to how long a writer takes
	for round := 0; kills < rounds(24, 1); round++ {
		path := filepath.Join(t.TempDir(), "m.sb")
		opt := options(m)
		env := append(os.Environ(), "STORE_TEST_WRITE="+path)
		if round%2 == 1 {
			opt.Reuse = old
			env = append(env, "STORE_TEST_REUSE="+old.Path())
		}
		whole := false
		for range 3 { // kill, go on, kill again
			cmd := exec.Command(os.Args[0])
			cmd.Env = env
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out.Read(make([]byte, 1)) // it begins to write
			time.Sleep(time.Duration(rng.Int64N(int64(longest))))
			cmd.Process.Kill()
			if cmd.Wait() != nil {
				kills++
			}
			there := checkWhole(t, path, want)
			if whole && !there {
				t.Fatal("a finished store is lost")
			}
			if whole = there; whole {
				finished++
			}
		}
		if whole {
			longest = longest * 2 / 3
		} else {
			longest = longest * 3 / 2
		}
		journal, _ := os.ReadFile(filepath.Join(path+".partial", "journal.jsonl"))
		kept += max(0, strings.Count(string(journal), "\n")-1)
		write(t, b, path, opt)
		sameFolders(t, folder(t, path), want)
		sameFolders(t, folder(t, old.Path()), oldFiles)
		os.RemoveAll(filepath.Dir(path))
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if kept == 0 {
		t.Error("no interrupted build had a record to keep: the test tests nothing")
	}
	t.Logf("%d kills; %d records kept; a whole store was there after %d of them", kills, kept, finished)
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

// faultBuild is a small build to interrupt, with an older store that has a part
// of it.
type faultBuild struct {
	*store.Build
	m        *model.Model
	want     map[string]string
	old      *store.Store
	oldFiles map[string]string
	dir      string
	calls    [2]int // of the file system, without and with the older store
}

func newFaultBuild(t *testing.T) *faultBuild {
	m := openModel(t, denseModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), quick, nil)))
	old := olderStore(t, m, func(op *doc.Op) ladder { return quick(op)[:1] })
	f := &faultBuild{Build: b, m: m, want: reference(t, m, b), old: old, oldFiles: folder(t, old.Path()), dir: t.TempDir()}
	for n := range f.calls {
		count := faultfs.New(vfs.OS{})
		write(t, b, filepath.Join(t.TempDir(), "m.sb"), f.options(n, count))
		if f.calls[n] = count.Calls(); f.calls[n] < 50 {
			t.Fatalf("only %d calls of the file system: the test tests little", f.calls[n])
		}
	}
	return f
}

// options are those of round n: each second one re-uses.
func (f *faultBuild) options(n int, files vfs.FS) store.Options {
	opt := options(f.m)
	opt.FS = files
	if n%2 == 1 {
		opt.Reuse = f.old
	}
	return opt
}

// crash writes with a call that fails, does what happens then, and checks that
// the next attempt makes the right store.
func (f *faultBuild) crash(t *testing.T, round, call int, fault error, sticky bool, then func(*faultfs.FS) error) {
	t.Helper()
	path := filepath.Join(f.dir, "new", fmt.Sprint(round), "m.sb") // folders that are not there yet
	files := faultfs.New(vfs.OS{})
	files.FailAt(call, fault, sticky)
	_, err := f.Write(context.Background(), path, f.options(round, files))
	if call <= f.calls[round%2] && fault != nil {
		// An older store that cannot be read is no failure.
		if err == nil && round%2 == 0 {
			t.Errorf("call %d failed, and Write did not tell", call)
		} else if err != nil && !errors.Is(err, fault) {
			t.Errorf("call %d: error %v hides its cause", call, err)
		}
	}
	done := err == nil
	if then != nil {
		if err := then(files); err != nil {
			t.Fatal(err)
		}
	}
	if !checkWhole(t, path, f.want) && done {
		t.Errorf("a finished store is lost")
	}
	write(t, f.Build, path, f.options(round, faultfs.New(vfs.OS{})))
	sameFolders(t, folder(t, path), f.want)
	sameFolders(t, folder(t, f.old.Path()), f.oldFiles)
	if t.Failed() {
		t.Fatalf("round %d, at call %d of %d", round, call, f.calls[round%2])
	}
	os.RemoveAll(filepath.Join(f.dir, "new"))
}

// Whatever call of the file system fails: no bad store, and the next attempt
// makes the right one.
func TestFaults(t *testing.T) {
	f := newFaultBuild(t)
	n := rounds(48, 1)
	for round := range n {
		call := 1 + round*f.calls[round%2]/n // each, if there are enough rounds
		f.crash(t, round, call, []error{faultfs.NoSpace, syscall.EIO}[round/2%2], round/4%2 == 1, nil)
	}
	t.Logf("%d errors over %d calls, and %d with an older store", n, f.calls[0], f.calls[1])
}

// Whatever was not synced when the power went, even after the end: no bad
// store, and none that was finished is lost.
func TestPowerCut(t *testing.T) {
	f := newFaultBuild(t)
	rng := rand.New(rand.NewPCG(9, 10))
	n := rounds(20, 4)
	for round := range n {
		calls := f.calls[round%2]
		call := 1 + rng.IntN(calls)
		if round%8 >= 6 {
			call = calls + 1 // finished
		}
		f.crash(t, round, call, syscall.EIO, true, func(files *faultfs.FS) error { return files.PowerCut(rng) })
	}
	t.Logf("%d power cuts", n)
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
