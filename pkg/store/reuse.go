package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// reuse is what a new store takes from an old one: records of equal identity,
// whose bytes are equal. A file that would be the same from end to end is
// linked, other records are copied. Everything is checked on the way: what is
// damaged in the old store is fitted anew.
type reuse struct {
	store   *Store
	records []int // by item: index into the old store's records, -1 for none
}

// findReuse looks up the records of a build in an old store.
func (c *Build) findReuse(old *Store, identities []string) *reuse {
	r := &reuse{store: old, records: make([]int, len(c.items))}
	byIdentity := make(map[string]int, len(old.manifest.Records))
	for i := range old.manifest.Records {
		byIdentity[old.manifest.Records[i].Identity] = i
	}
	for i := range c.items {
		r.records[i] = -1
		if n, ok := byIdentity[identities[i]]; ok && sameLayout(old.Layout(&old.manifest.Records[n]), &c.layouts[c.items[i].layout]) {
			r.records[i] = n
		}
	}
	return r
}

func sameLayout(a, b *doc.RecordLayout) bool { return fmt.Sprint(*a) == fmt.Sprint(*b) }

// record is the old store's record of item i, nil if there is none.
func (r *reuse) record(i int) *doc.Record {
	if r == nil || r.records[i] < 0 {
		return nil
	}
	return &r.store.manifest.Records[r.records[i]]
}

// sameFile is the old store's file that holds exactly the records of some
// items, where and as a new file would, or -1.
func (r *reuse) sameFile(items []item, of []int) int {
	m := r.store.manifest
	file, end := -1, int64(0)
	for n, i := range of {
		old := r.record(i)
		if old == nil || n > 0 && old.File != file || old.Offset != footprint.Align(end, footprint.RecordAlign) {
			return -1
		}
		// A raw record where a frame is allowed may have been raw for another
		// reason than that compression gained nothing.
		if old.Zstd != items[i].compress {
			return -1
		}
		file, end = old.File, old.Offset+old.Bytes
	}
	if file < 0 || m.Files[file].Bytes != footprint.Align(end, footprint.RecordAlign) {
		return -1
	}
	return file
}

// linkFiles gives the files that an old store has whole their names in the
// new one.
func (w *writer) linkFiles(ctx context.Context) error {
	of := make([][]int, len(w.files))
	for i := range w.items {
		of[w.items[i].file] = append(of[w.items[i].file], i)
	}
	for n := range w.files {
		from := w.reuse.sameFile(w.items, of[n])
		if from < 0 {
			continue
		}
		linked, err := w.linkFile(ctx, from, w.name(n))
		if err != nil {
			return err
		}
		if !linked {
			continue
		}
		sum := w.reuse.store.manifest.Files[from]
		w.files[n].linked = true
		w.files[n].sum = doc.StoreFile{File: w.Build.files[n], Bytes: sum.Bytes, SHA256: sum.SHA256}
	}
	return nil
}

// linkFile makes name another name of file n of the old store, if that is as
// it should be and the file system can.
func (w *writer) linkFile(ctx context.Context, n int, name string) (linked bool, err error) {
	old := w.reuse.store
	from := old.File(n)
	f, err := w.fs.Open(from)
	if err != nil {
		w.opt.Note("%v: its records are fitted anew", err)
		return false, nil
	}
	defer f.Close()
	switch err := checkSHA256(ctx, f, &old.manifest.Files[n]); {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		w.opt.Note("%s: %v: what is damaged of it is fitted anew", from, err)
		return false, nil
	}
	if err := w.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	switch err := w.fs.Link(from, name); {
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		return false, nil // its records are copied
	case err != nil:
		return false, err
	}
	return true, f.Sync() // whoever made the old store may have copied it just now
}

// checkSHA256 reads a file and compares it with what the manifest says.
func checkSHA256(ctx context.Context, f vfs.File, want *doc.StoreFile) error {
	hash := sha256.New()
	chunk := make([]byte, chunkBytes)
	for at := int64(0); at < want.Bytes; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := chunk[:min(chunkBytes, want.Bytes-at)]
		n, err := f.ReadAt(part, at)
		if n < len(part) {
			return fmt.Errorf("cannot be read at %d: %w", at+int64(n), err)
		}
		hash.Write(part)
		at += int64(n)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != want.SHA256 {
		return fmt.Errorf("sha256 is %s, want %s", sum, want.SHA256)
	}
	return nil
}

// copyRecord reads item i from the old store into raw; ok is false if that
// does not have it, or not intact.
func (w *writer) copyRecord(i int, raw []byte) (ok bool) {
	old := w.reuse.record(i)
	if old == nil {
		return false
	}
	if err := w.reuse.store.read(w.fs, raw, old); err != nil {
		w.opt.Note("%v: fitted anew", err)
		return false
	}
	return true
}

// private makes sure that writing to a file changes no other store: one that
// an earlier run linked is given up.
func (w *writer) private(name string) error {
	info, err := w.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 1 {
		return nil
	}
	return w.fs.Remove(name)
}

// Reusable estimates what of an old store a build may use, in bytes: what has
// the same place in the same model and the same encoding. Whether the weights
// are the same is not known before they are read.
func (c *Build) Reusable(old *Store) (bytes int64) {
	type key struct{ op, encoding string }
	have := map[key]bool{}
	for i := range old.manifest.Records {
		have[key{old.manifest.Records[i].Op, old.manifest.Records[i].Encoding}] = true
	}
	if old.manifest.Profile.HeaderSHA256 != c.spec.Profile.HeaderSHA256 {
		return 0
	}
	for i := range c.items {
		it := &c.items[i]
		if have[key{c.spec.Profile.Ops[it.op].ID, c.encodings[it.encoding].ID}] {
			bytes += c.layouts[it.layout].Bytes
		}
	}
	return bytes
}
