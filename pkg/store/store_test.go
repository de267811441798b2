package store_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/quant"
	"substrate/pkg/store"
)

// folder reads every file below a folder.
func folder(t testing.TB, path string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(path, name)
		files[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func sameFolders(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, b := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if g != b {
			t.Errorf("%s differs", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is one too many", name)
		}
	}
}

// checkRecords compares each record of a store with what the quantizer makes.
func checkRecords(t *testing.T, s *store.Store, p *store.Plan, source quant.Source) {
	t.Helper()
	m := s.Manifest()
	encoder := quant.Encoder{Source: source}
	var encode func(id string) []byte
	encode = func(id string) []byte {
		r := p.Record(id)
		var op *doc.Op
		for i := range m.Profile.Ops {
			if m.Profile.Ops[i].ID == r.Op {
				op = &m.Profile.Ops[i]
			}
		}
		var enc *doc.Encoding
		for i := range m.Encodings {
			if m.Encodings[i].ID == r.Encoding {
				enc = &m.Encodings[i]
			}
		}
		var below []quant.Record
		for _, c := range p.Catalog {
			if c.ID == id && c.Below != "" { // tests stack one residual at most
				below = append(below, quant.Record{Layout: s.Layout(p.Record(c.Below)), Bytes: encode(c.Below)})
			}
		}
		dst := make([]byte, s.Layout(r).Bytes)
		if err := encoder.Encode(context.Background(), dst, op, enc, s.Layout(r), below...); err != nil {
			t.Fatal(err)
		}
		return dst
	}
	for _, c := range p.Catalog {
		r := p.Record(c.ID)
		got := make([]byte, s.Layout(r).Bytes)
		if err := s.Read(got, r); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, encode(c.ID)) {
			t.Errorf("record %q holds other bytes than the quantizer makes", c.ID)
		}
	}
}

func TestWriteOpen(t *testing.T) {
	m := openModel(t, moeModel)
	plan := makePlan(t, m.Profile(), mixed, map[string]bool{"block_0.attn.skeleton": true})
	for _, compress := range []bool{false, true} {
		s := spec(t, m, plan)
		s.Compress = compress
		path := filepath.Join(t.TempDir(), "m.sb")
		b := newBuild(t, s)
		var done int64
		opt := options(m)
		opt.Progress = func(_ string, n int64) { done += n }
		packed := write(t, b, path, opt)
		if err := packed.Validate(); err != nil {
			t.Error(err)
		}
		st, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.SHA256() != packed.Manifest || st.Path() != packed.Store || packed.Records != len(plan.Catalog) {
			t.Errorf("packed line %+v of store %s", packed, st.SHA256())
		}
		if damage, err := st.Verify(context.Background(), nil); err != nil || len(damage) > 0 {
			t.Errorf("verify: %v, %v", damage, err)
		}
		p, err := st.Plan("")
		if err != nil {
			t.Fatal(err)
		}
		checkRecords(t, st, p, m)
		text, err := st.Text("tokenizer.json")
		if err != nil || string(text) != "{}\n" {
			t.Errorf("tokenizer.json is %q, %v", text, err)
		}
		zstd := 0
		for _, r := range st.Manifest().Records {
			if r.Zstd {
				zstd++
				if r.ID == "block_0.attn.skeleton" {
					t.Errorf("record %q is streamed, but compressed", r.ID)
				}
			}
		}
		if compress != (zstd > 0) {
			t.Errorf("compress is %v, %d records are compressed", compress, zstd)
		}
		for i, f := range st.Manifest().Files {
			if f.Bytes%4096 != 0 && strings.HasPrefix(f.File, "tensors/") {
				t.Errorf("%s has %d bytes, no whole blocks", st.File(i), f.Bytes)
			}
		}
		if want := b.Bytes(); done == 0 || packed.Bytes > want || !compress && packed.Bytes != want {
			t.Errorf("estimated %d bytes, packed %d, told of %d", want, packed.Bytes, done)
		}
		if _, err := os.Stat(path + ".partial"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder that was built in is still there: %v", err)
		}
	}
}

func TestFileNames(t *testing.T) {
	m := openModel(t, moeModel)
	path := filepath.Join(t.TempDir(), "m.sb")
	write(t, newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil))), path, options(m))
	files := folder(t, path)
	for _, name := range []string{
		"manifest.json", "plans/default.json", "tokenizer.json", "tensors/embedding.skeleton.bin", "tensors/block_0.attn.skeleton.bin",
		"tensors/block_0.attn.level_1.bin", "tensors/block_1.experts.skeleton.bin", "tensors/block_1.experts.residual_1.bin",
	} {
		if _, ok := files[name]; !ok {
			t.Errorf("no file %s", name)
		}
	}
	for name := range files {
		if strings.Contains(name, "expert_") {
			t.Errorf("file %s of a single expert", name)
		}
	}
}

// A store has the records of all its plans, each once.
func TestTwoPlans(t *testing.T) {
	m := openModel(t, moeModel)
	first := makePlan(t, m.Profile(), mixed, nil)
	q5 := coded(5, "lsq", false)
	second := makePlan(t, m.Profile(), func(op *doc.Op) ladder {
		switch {
		case op.Kind == doc.KindAttention && op.Layer == 0:
			return ladder{{q5}}
		case op.Kind == doc.KindAttention:
			return ladder{{q4}} // the first plan's level_1
		}
		return mixed(op)[:1]
	}, nil)
	path := filepath.Join(t.TempDir(), "m.sb")
	packed := write(t, newBuild(t, spec(t, m, first, second)), path, options(m))
	if want := len(first.Catalog) + 1; packed.Records != want { // attention's skeleton of 5 bits is new
		t.Errorf("%d records, want %d", packed.Records, want)
	}
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// The file of what differs is named after what is in it, not after the plan.
	tagged, _ := filepath.Glob(filepath.Join(path, "tensors", "block_?.attn.skeleton.????????.bin"))
	if len(tagged) != 1 {
		t.Errorf("files %q of the second plan, want one", tagged)
	}
	second.Annotations = doc.Annotations{"note": "x"}
	again := filepath.Join(t.TempDir(), "m.sb")
	write(t, newBuild(t, spec(t, m, first, second)), again, options(m))
	for _, name := range tagged {
		if _, err := os.Stat(filepath.Join(again, "tensors", filepath.Base(name))); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{"default": q2.ID, "small": q4.ID} {
		p, err := s.Plan(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Record("block_1.attn.skeleton").Encoding; got != want {
			t.Errorf("plan %q: attention's skeleton has encoding %s, want %s", name, got, want)
		}
		checkRecords(t, s, p, m)
	}
	if _, err := s.Plan("none"); err == nil || !strings.Contains(err.Error(), `no plan "none", only ["default" "small"]`) {
		t.Errorf("plan that is not there: %v", err)
	}
}

// The same inputs give the same bytes, whatever the number of threads.
func TestDeterministic(t *testing.T) {
	m := openModel(t, moeModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	var want map[string]string
	for _, threads := range []int{1, 3} {
		path := filepath.Join(t.TempDir(), "m.sb")
		opt := options(m)
		opt.Threads = threads
		write(t, b, path, opt)
		got := folder(t, path)
		if want == nil {
			want = got
		}
		sameFolders(t, got, want)
	}
}

func TestExisting(t *testing.T) {
	m := openModel(t, denseModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	other := newBuild(t, spec(t, m, makePlan(t, m.Profile(), uniform(q4), nil)))
	path := filepath.Join(t.TempDir(), "m.sb")
	if err := os.Mkdir(path, 0o777); err != nil { // an empty folder is in nobody's way
		t.Fatal(err)
	}
	first := write(t, b, path, options(m))
	before := folder(t, path)
	opt := options(m)
	opt.Source = nil // nothing is fitted again
	if again := write(t, b, path, opt); *again != *first {
		t.Errorf("up to date: packed %+v, first %+v", again, first)
	}
	refused := func(name string, b *store.Build, path string, opt store.Options, want string) {
		t.Helper()
		_, err := b.Write(context.Background(), path, opt)
		var exists *store.ExistsError
		if !errors.As(err, &exists) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	refused("another plan", other, path, options(m), "finished store of another plan or model")
	opt = options(m)
	opt.Weights = func(context.Context) (string, error) { return "other", nil }
	refused("other weights", b, path, opt, "finished store of another plan or model")
	sameFolders(t, folder(t, path), before)

	// A link to an empty folder is followed, a link to nothing refused.
	links := t.TempDir()
	os.Mkdir(filepath.Join(links, "folder"), 0o777)
	for _, name := range []string{"folder", "nothing"} {
		if err := os.Symlink(name, filepath.Join(links, "to-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if packed := write(t, b, filepath.Join(links, "to-folder"), options(m)); packed.Store != filepath.Join(links, "folder") {
		t.Errorf("a link to a folder: the store is %s", packed.Store)
	}
	refused("a link to nothing", b, filepath.Join(links, "to-nothing"), options(m), "symbolic link to nothing")

	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o666)
	refused("a file", b, file, options(m), "is a file")
	refused("a folder", b, filepath.Dir(file), options(m), "neither empty nor a store")
	os.MkdirAll(filepath.Join(file+".sb.partial", "photos"), 0o777)
	refused("a partial folder of something else", b, file+".sb", options(m), `holds "photos"`)
}

func TestBusy(t *testing.T) {
	m := openModel(t, denseModel)
	b := newBuild(t, spec(t, m, makePlan(t, m.Profile(), mixed, nil)))
	path := filepath.Join(t.TempDir(), "m.sb")
	opt := options(m)
	once := false
	opt.Progress = func(string, int64) {
		if once {
			return
		}
		once = true
		_, err := b.Write(context.Background(), path, options(m))
		if busy := (*store.BusyError)(nil); !errors.As(err, &busy) {
			t.Errorf("a second writer: %v", err)
		}
	}
	write(t, b, path, opt)
}
