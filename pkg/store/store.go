// Package store reads and writes packed stores: folders that hold, for every
// op and expert of a model, the records that the tiers of one or more plans
// need. FORMAT.md in this folder describes what is on disk.
//
// A store is immutable. [Write] builds it in a folder beside it, NEW.partial,
// which becomes the store by a rename when everything in it is durable; a
// build that was interrupted, even by a power cut, is taken up where it ended.
// [Open] checks everything that can be checked without reading the records,
// [Verify] those too.
package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// ManifestFile is the file whose presence makes a folder a store, DigestFile
// the one that tells whether it is as sb-pack wrote it, in the form that
// sha256sum -c checks.
const (
	ManifestFile = "manifest.json"
	DigestFile   = "manifest.sha256"
)

// digestLine is what DigestFile holds.
func digestLine(sha256 string) []byte { return []byte(sha256 + "  " + ManifestFile + "\n") }

// Bounds of what is read whole.
const (
	maxManifestBytes = 1 << 30
	maxPlanBytes     = 1 << 30
)

// CorruptError is something wrong with a store on disk.
type CorruptError struct {
	Path   string // of the store, or of the file in it
	Reason string
}

func (e *CorruptError) Error() string { return e.Path + ": " + e.Reason }

// ExitCode is that of corruption.
func (e *CorruptError) ExitCode() int { return 4 }

func corrupt(path, format string, args ...any) error {
	return &CorruptError{path, fmt.Sprintf(format, args...)}
}

// Store is an open store. Its methods are safe for concurrent use.
type Store struct {
	path     string
	manifest *doc.Manifest
	sha256   string // of the manifest
}

// Open opens the store in a folder. It reads the manifest and checks that its
// records are what op and encoding say, and that its files have their sizes.
func Open(path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(path, ManifestFile)
	f, err := os.Open(name)
	if err != nil {
		return nil, noStore(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxManifestBytes {
		return nil, corrupt(name, "not a regular file of at most %d bytes", maxManifestBytes)
	}
	hash := sha256.New()
	m, err := readManifest(name, io.TeeReader(f, hash))
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, manifest: m, sha256: hex.EncodeToString(hash.Sum(nil))}
	if err := s.checkDigest(); err != nil {
		return nil, err
	}
	if err := s.checkLayouts(); err != nil {
		return nil, err
	}
	return s, s.checkFiles()
}

// checkDigest compares the manifest with its digest: all else in a store is
// checked against the manifest.
func (s *Store) checkDigest() error {
	name := filepath.Join(s.path, DigestFile)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt(s.path, "has no %s: the store is damaged, pack it again", DigestFile)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	want := digestLine(s.sha256)
	got, err := io.ReadAll(io.LimitReader(f, int64(len(want))+1))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return corrupt(filepath.Join(s.path, ManifestFile), "sha256 is %s, not what %s says: the store was changed or is damaged, pack it again", s.sha256, DigestFile)
	}
	return nil
}

// noStore says why a folder has no manifest.
func noStore(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	if _, statErr := os.Stat(path); statErr != nil {
		return statErr
	}
	if filepath.Ext(path) == partialSuffix {
		return corrupt(path, "a store that is not finished: run the same sb-pack again")
	}
	return corrupt(path, "not a store: it has no %s", ManifestFile)
}

// checkLayouts compares each record with what its op and encoding make of it.
func (s *Store) checkLayouts() error {
	m := s.manifest
	ops := make(map[string]*doc.Op, len(m.Profile.Ops))
	for i := range m.Profile.Ops {
		ops[m.Profile.Ops[i].ID] = &m.Profile.Ops[i]
	}
	encodings := make(map[string]*doc.Encoding, len(m.Encodings))
	for i := range m.Encodings {
		encodings[m.Encodings[i].ID] = &m.Encodings[i]
	}
	var l doc.RecordLayout
	for i := range m.Records {
		r := &m.Records[i]
		var err error
		if l, err = footprint.Layout(ops[r.Op], encodings[r.Encoding]); err != nil {
			return corrupt(s.path, "record %q: %v", r.ID, err)
		}
		have := &m.Layouts[r.Layout]
		if have.Bytes != l.Bytes || !slices.Equal(have.Tensors, l.Tensors) {
			return corrupt(s.path, "record %q: its layout is not that of op %q in encoding %q", r.ID, r.Op, r.Encoding)
		}
	}
	return nil
}

// checkFiles compares the files with the manifest.
func (s *Store) checkFiles() error {
	m := s.manifest
	if m.Align < footprint.RecordAlign {
		return corrupt(s.path, "records are aligned to %d bytes, want %d or more", m.Align, footprint.RecordAlign)
	}
	listed := make(map[string]string, len(m.Files))
	for i := range m.Files {
		f := &m.Files[i]
		listed[f.File] = f.SHA256
		info, err := os.Lstat(s.File(i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return corrupt(s.File(i), "missing: the store is damaged, pack it again")
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return corrupt(s.File(i), "not a regular file")
		case info.Size() != f.Bytes:
			return corrupt(s.File(i), "%d bytes, want %d: the store is damaged, pack it again", info.Size(), f.Bytes)
		}
	}
	for i := range m.Plans {
		p := &m.Plans[i]
		if sum, ok := listed[p.File]; !ok || sum != p.SHA256 {
			return corrupt(s.path, "plan %q: file %q is not listed with its sha256", p.Name, p.File)
		}
	}
	return nil
}

// Path is the store's folder, absolute.
func (s *Store) Path() string { return s.path }

// Manifest describes the store. The caller must not change it.
func (s *Store) Manifest() *doc.Manifest { return s.manifest }

// SHA256 is the digest of the manifest, and so of the store.
func (s *Store) SHA256() string { return s.sha256 }

// File is the path of file i of the manifest.
func (s *Store) File(i int) string {
	return filepath.Join(s.path, filepath.FromSlash(s.manifest.Files[i].File))
}

// Layout places the tensors of a record.
func (s *Store) Layout(r *doc.Record) *doc.RecordLayout { return &s.manifest.Layouts[r.Layout] }

// Plan is a plan of the store with its records.
type Plan struct {
	*doc.Plan
	Name    string
	records map[string]*doc.Record
}

// NoPlanError is a name of no plan.
type NoPlanError struct {
	Path, Name string
	Names      []string // those that there are
}

func (e *NoPlanError) Error() string {
	return fmt.Sprintf("%s has no plan %q, only %q", e.Path, e.Name, e.Names)
}

// ExitCode is that of a wrong command line.
func (e *NoPlanError) ExitCode() int { return 2 }

// Record returns the record that the plan calls id, nil if there is none.
func (p *Plan) Record(id string) *doc.Record { return p.records[id] }

// Plan reads a plan; the name "" is the first one.
func (s *Store) Plan(name string) (*Plan, error) {
	at := 0
	if name != "" {
		at = slices.IndexFunc(s.manifest.Plans, func(p doc.StoredPlan) bool { return p.Name == name })
	}
	if at < 0 {
		var names []string
		for i := range s.manifest.Plans {
			names = append(names, s.manifest.Plans[i].Name)
		}
		return nil, &NoPlanError{s.path, name, names}
	}
	stored := &s.manifest.Plans[at]
	b, err := s.Text(stored.File)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.path, filepath.FromSlash(stored.File))
	p, err := doc.Read[doc.Plan](path, b)
	if err != nil {
		return nil, err
	}
	if len(stored.Records) != len(p.Catalog) {
		return nil, corrupt(path, "%d records for a catalog of %d", len(stored.Records), len(p.Catalog))
	}
	records := make(map[string]*doc.Record, len(p.Catalog))
	for i, n := range stored.Records {
		c, r := &p.Catalog[i], &s.manifest.Records[n]
		if r.Op != c.Op || r.Encoding != c.Encoding {
			return nil, corrupt(path, "record %q of op %q, encoding %q, is said to be %q of op %q, encoding %q", c.ID, c.Op, c.Encoding, r.ID, r.Op, r.Encoding)
		}
		records[c.ID] = r
	}
	return &Plan{p, stored.Name, records}, nil
}

// Text reads a listed file that is no file of records, such as
// "tokenizer.json", and checks its digest. One that is not listed is an
// fs.ErrNotExist.
func (s *Store) Text(file string) ([]byte, error) {
	at := slices.IndexFunc(s.manifest.Files, func(f doc.StoreFile) bool { return f.File == file })
	if at < 0 {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(s.path, file), Err: fs.ErrNotExist}
	}
	f := &s.manifest.Files[at]
	if f.Bytes > maxPlanBytes {
		return nil, corrupt(s.File(at), "%d bytes are too many to read at once", f.Bytes)
	}
	b, err := os.ReadFile(s.File(at))
	if err != nil {
		return nil, err
	}
	if digest(b) != f.SHA256 {
		return nil, corrupt(s.File(at), "sha256 does not match the manifest: the store is damaged, pack it again")
	}
	return b, nil
}
