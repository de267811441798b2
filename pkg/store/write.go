package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// Names beside the manifest while a store is built.
const (
	partialSuffix = ".partial"
	journalFile   = "journal.jsonl"
	lockFile      = "lock"
)

// Options are what writing needs beside the Build.
type Options struct {
	Source quant.Source
	Stats  *quant.Stats // what Build.Statistics names
	// Weights returns the content digest of the model's weights. It is called
	// on a goroutine of its own while records are fitted.
	Weights func(context.Context) (string, error)
	// Fingerprint tells apart sources that the profile does not, without
	// reading the weights: sizes and times of files. An interrupted build of
	// another fingerprint is started over.
	Fingerprint string
	// Reuse is an older store that may have some of the records, of any plan or
	// model; nil if there is none. It changes no byte of the result.
	Reuse    *Store
	Threads  int                              // 0: one per processor
	Progress func(record string, bytes int64) // called when a record is done, with its raw bytes; may be nil
	Note     func(format string, args ...any) // tells the user what to know; may be nil
	FS       vfs.FS                           // nil: the operating system's
}

// ExistsError is the refusal to write where something is that must not be
// overwritten.
type ExistsError struct{ Path, Reason string }

func (e *ExistsError) Error() string { return e.Path + ": " + e.Reason }

// ExitCode is that of a "no".
func (e *ExistsError) ExitCode() int { return 1 }

// Write makes the store at path, unless it is there already with the same
// contents. It is built in path.partial; what an interrupted build left there
// is kept where its checksums are right. No error, signal or power cut leaves
// anything at path but a whole store.
//
// Errors are *ExistsError, *BusyError, ctx's, or those of source and file system.
func (c *Build) Write(ctx context.Context, path string, opt Options) (*doc.Packed, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path, err = followLink(path); err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	if packed, err := c.existing(ctx, path, opt); packed != nil || err != nil {
		return packed, err
	}
	w := &writer{Build: c, opt: opt, fs: opt.FS, path: path, dir: path + partialSuffix, memory: buffers{}}
	defer w.codec.close()
	if err := w.makeFolder(w.dir); err != nil {
		return nil, err
	}
	lock, err := lock(filepath.Join(w.dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := w.begin(); err != nil {
		return nil, err
	}
	defer w.closeFiles()
	weights, err := w.writeAll(ctx)
	if err != nil {
		return nil, err
	}
	return w.finish(weights)
}

// writeAll writes all records and returns the digest of the weights. It takes
// that while it writes, or before if the digest tells what can be re-used.
func (w *writer) writeAll(ctx context.Context) (weights string, err error) {
	if w.opt.Reuse != nil {
		if weights, err = w.opt.Weights(ctx); err != nil {
			return "", err
		}
		w.reuse = w.findReuse(w.opt.Reuse, w.identities(weights))
		return weights, w.writeRecords(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		weights, err = w.opt.Weights(ctx)
		return err
	})
	group.Go(func() error { return w.writeRecords(ctx) })
	return weights, group.Wait()
}

// followLink is where a symbolic link leads: a folder cannot take its place.
func followLink(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil // what is wrong with it is found later
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &ExistsError{path, "is a symbolic link to nothing: remove it, or name the folder that is to be made"}
	}
	return target, err
}

func (opt Options) withDefaults() Options {
	if opt.FS == nil {
		opt.FS = vfs.OS{}
	}
	if opt.Progress == nil {
		opt.Progress = func(string, int64) {}
	}
	if opt.Note == nil {
		opt.Note = func(string, ...any) {}
	}
	if opt.Threads <= 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	return opt
}

// existing looks at what is at path: nothing (nil, nil), this store, or
// something else, which is an error.
func (c *Build) existing(ctx context.Context, path string, opt Options) (*doc.Packed, error) {
	info, err := opt.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &ExistsError{path, "is a file, where the store's folder would be"}
	}
	entries, err := opt.FS.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, nil
	}
	if _, err := opt.FS.Stat(filepath.Join(path, ManifestFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, &ExistsError{path, "is a folder that is neither empty nor a store"}
	}
	s, err := Open(path)
	if err != nil {
		return nil, &ExistsError{path, fmt.Sprintf("is a store that cannot be read (%v): remove it, or choose another name", err)}
	}
	same, err := c.sameAs(ctx, s, opt.Weights)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, &ExistsError{path, "is a finished store of another plan or model, and stores are immutable: remove it, or choose another name"}
	}
	return s.packed(), nil
}

// sameAs reports whether a store holds what c would write. It reads the
// weights only if all else is the same.
func (c *Build) sameAs(ctx context.Context, s *Store, weights func(context.Context) (string, error)) (bool, error) {
	m := s.manifest
	if len(m.Records) != len(c.items) || len(m.Plans) != len(c.plans) || len(m.Files) != len(c.files)+len(c.plans)+len(c.spec.Texts) {
		return false, nil
	}
	for i := range c.plans {
		if m.Plans[i].Name != c.plans[i].name || m.Plans[i].SHA256 != digest(c.plans[i].text) {
			return false, nil
		}
	}
	sums := map[string]string{}
	for i := range m.Files {
		sums[m.Files[i].File] = m.Files[i].SHA256
	}
	for _, t := range c.spec.Texts {
		if sums[t.File] != digest(t.Data) {
			return false, nil
		}
	}
	sum, err := weights(ctx)
	if err != nil {
		return false, err
	}
	type key struct{ id, identity string }
	records := map[key]bool{}
	for i := range m.Records {
		records[key{m.Records[i].ID, m.Records[i].Identity}] = true
	}
	for i, identity := range c.identities(sum) {
		if !records[key{c.items[i].id, identity}] {
			return false, nil
		}
	}
	return true, nil
}

// packed is the line that tells of s.
func (s *Store) packed() *doc.Packed {
	p := &doc.Packed{
		Format: doc.FormatPacked, Synthetic: s.manifest.Synthetic, Store: s.path, Manifest: s.sha256,
		Plan: s.manifest.Plans[0].Name, Records: len(s.manifest.Records),
	}
	for i := range s.manifest.Files {
		p.Bytes += s.manifest.Files[i].Bytes
	}
	return p
}

// writer is one build under way.
type writer struct {
	*Build
	opt     Options
	fs      vfs.FS
	path    string // of the store
	dir     string // where it is built
	journal *journal
	done    map[int]journalLine // by item: whole, if its checksum is right
	codec   codec
	memory  buffers
	files   []outFile
	reuse   *reuse
	reused  int64        // bytes of records that the old store had
	records []doc.Record // by item
	above   []bool       // by item: some record adds to it
}

// outFile is a file of records while it is written.
type outFile struct {
	file   vfs.File
	hash   hash.Hash
	end    int64 // of the last record
	left   int   // items to come
	linked bool  // the whole file is that of another store
	sum    doc.StoreFile
}

// makeFolder makes a folder and those above it. New names are made durable
// here: nobody would do it for the folders above later.
func (w *writer) makeFolder(path string) error {
	var made []string
	for folder := path; ; folder = filepath.Dir(folder) {
		_, err := w.fs.Stat(folder)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		made = append(made, folder)
	}
	if err := w.fs.MkdirAll(path); err != nil {
		return err
	}
	for _, folder := range made {
		if err := w.fs.SyncDir(filepath.Dir(folder)); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the folder ready: with what a build of the same contents left
// there, or empty.
func (w *writer) begin() error {
	entries, err := w.fs.ReadDir(w.dir)
	if err != nil {
		return err
	}
	known := map[string]bool{lockFile: true, journalFile: true, DigestFile: true, ManifestFile: true, "tensors": true, "plans": true}
	for _, t := range w.spec.Texts {
		known[t.File] = true
	}
	journaled := false
	for _, e := range entries {
		journaled = journaled || e.Name() == journalFile
	}
	for _, e := range entries {
		if !journaled && !known[e.Name()] {
			return &ExistsError{w.dir, fmt.Sprintf("holds %q, which is no part of a store: move it away", e.Name())}
		}
	}
	name := filepath.Join(w.dir, journalFile)
	build := w.buildDigest()
	j, lines, same, err := openJournal(w.fs, name, build)
	if err != nil {
		return err
	}
	if !same {
		w.opt.Note("%s was of other inputs: started over", w.dir)
	}
	if !same || len(lines) == 0 {
		if err := w.wipe(same); err != nil {
			return err
		}
	}
	if !same {
		if j, _, same, err = openJournal(w.fs, name, build); err != nil || !same {
			return errors.Join(err, fmt.Errorf("%s: cannot begin a journal", name))
		}
	}
	w.journal = j
	w.done = make(map[int]journalLine, len(lines))
	for _, l := range lines {
		w.done[l.Item] = l
	}
	for _, folder := range []string{"tensors", "plans"} {
		if err := w.fs.MkdirAll(filepath.Join(w.dir, folder)); err != nil {
			return err
		}
	}
	return nil
}

// wipe removes what is in the folder but the lock.
func (w *writer) wipe(keepJournal bool) error {
	entries, err := w.fs.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockFile || keepJournal && e.Name() == journalFile {
			continue
		}
		if err := w.fs.RemoveAll(filepath.Join(w.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// buildDigest is the digest of everything that decides the store's bytes.
func (w *writer) buildDigest() string {
	h := sha256.New()
	fmt.Fprintln(h, doc.FormatStore, w.opt.Fingerprint, w.spec.Compress, w.identities(""))
	for i := range w.plans {
		fmt.Fprintln(h, w.plans[i].name, digest(w.plans[i].text))
	}
	for _, t := range w.spec.Texts {
		fmt.Fprintln(h, t.File, digest(t.Data))
	}
	fmt.Fprintln(h, w.spec.Profile.ModelID, w.spec.Profile.HeaderSHA256, w.layouts)
	return hex.EncodeToString(h.Sum(nil))
}

// finish writes what is not records, makes all durable and the folder a store.
func (w *writer) finish(weights string) (*doc.Packed, error) {
	m := w.manifest(weights)
	texts := append([]Text(nil), w.spec.Texts...)
	for i := range w.plans {
		texts = append(texts, Text{m.Plans[i].File, w.plans[i].text})
	}
	for _, t := range texts {
		if err := w.writeText(t); err != nil {
			return nil, err
		}
	}
	text, err := doc.Write(m)
	if err != nil {
		return nil, err
	}
	for _, t := range []Text{{DigestFile, digestLine(digest(text))}, {ManifestFile, text}} {
		if err := w.writeText(t); err != nil {
			return nil, err
		}
	}
	if err := w.journal.file.Close(); err != nil {
		return nil, err
	}
	w.journal = nil
	for _, name := range []string{journalFile, lockFile} {
		if err := w.fs.Remove(filepath.Join(w.dir, name)); err != nil {
			return nil, err
		}
	}
	for _, folder := range []string{"tensors", "plans", ""} {
		if err := w.fs.SyncDir(filepath.Join(w.dir, folder)); err != nil {
			return nil, err
		}
	}
	if err := w.fs.Rename(w.dir, w.path); err != nil {
		return nil, err
	}
	if err := w.fs.SyncDir(filepath.Dir(w.path)); err != nil {
		return nil, err
	}
	s := &Store{path: w.path, manifest: m, sha256: digest(text)}
	packed := s.packed()
	packed.ReusedBytes = w.reused
	return packed, nil
}

func (w *writer) manifest(weights string) *doc.Manifest {
	m := &doc.Manifest{
		Format: doc.FormatStore, Synthetic: w.synthetic, ModelID: w.spec.Profile.ModelID, Profile: *w.spec.Profile,
		Align: footprint.RecordAlign, ScaleType: w.scale, Encodings: w.encodings, Layouts: w.layouts, Annotations: w.spec.Profile.Annotations,
	}
	for i := range w.files {
		m.Files = append(m.Files, w.files[i].sum)
	}
	place := make([]int, len(w.items)) // of each item among the records
	m.Records = make([]doc.Record, 0, len(w.items))
	byFile := make([][]int, len(w.files))
	for i := range w.items {
		byFile[w.items[i].file] = append(byFile[w.items[i].file], i)
	}
	identities := w.identities(weights)
	for _, items := range byFile {
		for _, i := range items {
			place[i] = len(m.Records)
			r := w.records[i]
			r.Identity = identities[i]
			m.Records = append(m.Records, r)
		}
	}
	for i := range w.plans {
		p := &w.plans[i]
		stored := doc.StoredPlan{Name: p.name, File: "plans/" + p.name + ".json", SHA256: digest(p.text)}
		for _, n := range p.items {
			stored.Records = append(stored.Records, place[n])
		}
		m.Plans = append(m.Plans, stored)
		m.Files = append(m.Files, doc.StoreFile{File: stored.File, Bytes: int64(len(p.text)), SHA256: stored.SHA256})
	}
	for _, t := range w.spec.Texts {
		m.Files = append(m.Files, doc.StoreFile{File: t.File, Bytes: int64(len(t.Data)), SHA256: digest(t.Data)})
	}
	return m
}

// writeText writes a small file and syncs it.
func (w *writer) writeText(t Text) error {
	f, err := w.fs.Edit(filepath.Join(w.dir, filepath.FromSlash(t.File)))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(t.Data, 0)
	if err == nil {
		err = f.Truncate(int64(len(t.Data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// closeFiles closes what an error left open.
func (w *writer) closeFiles() {
	if w.journal != nil {
		w.journal.file.Close()
	}
	for i := range w.files {
		if f := w.files[i].file; f != nil {
			f.Close()
		}
	}
}
