package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"substrate/internal/crc32c"
	"substrate/internal/vfs"
	"substrate/pkg/doc"
)

// chunkBytes is the size of a read while a store is verified.
const chunkBytes = 1 << 20

// Verify reads everything back: the digest of each file, the checksum of each
// record, each plan. It returns what is damaged; an error is one of reading.
// progress is called with the bytes read; it may be nil.
func (s *Store) Verify(ctx context.Context, progress func(bytes int64)) ([]*CorruptError, error) {
	v := verifier{s: s, progress: progress, chunk: make([]byte, chunkBytes)}
	if v.progress == nil {
		v.progress = func(int64) {}
	}
	records := s.manifest.Records
	for i := range s.manifest.Files {
		n := 0
		for n < len(records) && records[n].File == i {
			n++
		}
		if err := v.file(ctx, i, records[:n]); err != nil {
			return v.damage, err
		}
		records = records[n:]
	}
	if len(v.damage) > 0 {
		return v.damage, nil
	}
	for i := range s.manifest.Plans {
		if _, err := s.Plan(s.manifest.Plans[i].Name); err != nil {
			v.add(s.path, "plan %q: %v", s.manifest.Plans[i].Name, err)
		}
	}
	return v.damage, nil
}

type verifier struct {
	s        *Store
	progress func(int64)
	chunk    []byte
	damage   []*CorruptError
}

func (v *verifier) add(path, format string, args ...any) {
	v.damage = append(v.damage, &CorruptError{path, fmt.Sprintf(format, args...)})
}

// file reads file i, which holds records in order, from start to end.
func (v *verifier) file(ctx context.Context, i int, records []doc.Record) error {
	f, err := os.Open(v.s.File(i))
	if err != nil {
		return err
	}
	defer f.Close()
	want := &v.s.manifest.Files[i]
	hash := sha256.New()
	crcs := make([]uint32, len(records))
	first := 0 // record that the chunk begins in or before
	for at := int64(0); at < want.Bytes; {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk := v.chunk[:min(chunkBytes, want.Bytes-at)]
		if _, err := f.ReadAt(chunk, at); err != nil {
			return err
		}
		hash.Write(chunk)
		for n := first; n < len(records); n++ {
			r := &records[n]
			from, to := max(r.Offset, at), min(r.Offset+r.Bytes, at+int64(len(chunk)))
			if from < to {
				crcs[n] = crc32c.Update(crcs[n], chunk[from-at:to-at])
			}
			if r.Offset+r.Bytes > at+int64(len(chunk)) {
				break
			}
			first = n + 1
		}
		at += int64(len(chunk))
		v.progress(int64(len(chunk)))
	}
	for n := range records {
		r := &records[n]
		if r.Zstd {
			if crcs[n], err = v.frame(f, r); err != nil {
				v.add(v.s.File(i), "record %q at offset %d: %v", r.ID, r.Offset, err)
				continue
			}
		}
		if crcs[n] != r.CRC32C {
			v.add(v.s.File(i), "record %q at offset %d: crc32c is %08x, want %08x", r.ID, r.Offset, crcs[n], r.CRC32C)
		}
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != want.SHA256 {
		v.add(v.s.File(i), "sha256 is %s, want %s", sum, want.SHA256)
	}
	return nil
}

// frame is the checksum of the raw bytes of a compressed record.
func (v *verifier) frame(f *os.File, r *doc.Record) (uint32, error) {
	d, err := newDecoder(io.NewSectionReader(f, r.Offset, r.Bytes))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	crc := crc32c.New()
	n, err := io.Copy(crc, d)
	if want := v.s.Layout(r).Bytes; err == nil && n != want {
		err = fmt.Errorf("zstd frame holds %d bytes, want %d", n, want)
	}
	return crc.Sum32(), err
}

// Read reads the raw bytes of a record into dst, which must have its layout's
// size, and checks them. It is the simple way, for tools that read a store
// once; sb-run has readers of its own.
func (s *Store) Read(dst []byte, r *doc.Record) error { return s.read(vfs.OS{}, dst, r) }

func (s *Store) read(files vfs.FS, dst []byte, r *doc.Record) error {
	if want := s.Layout(r).Bytes; int64(len(dst)) != want {
		return fmt.Errorf("record %q: %d bytes of memory for %d", r.ID, len(dst), want)
	}
	f, err := files.Open(s.File(r.File))
	if err != nil {
		return err
	}
	defer f.Close()
	var src io.Reader = io.NewSectionReader(f, r.Offset, r.Bytes)
	if r.Zstd {
		d, err := newDecoder(src)
		if err != nil {
			return err
		}
		defer d.Close()
		src = d
	}
	var failed *fs.PathError
	if _, err := io.ReadFull(src, dst); errors.As(err, &failed) {
		return fmt.Errorf("record %q: %w", r.ID, err)
	} else if err != nil {
		return corrupt(s.File(r.File), "record %q at offset %d: %v", r.ID, r.Offset, err)
	}
	if got := crc32c.Sum(dst); got != r.CRC32C {
		return corrupt(s.File(r.File), "record %q at offset %d: crc32c is %08x, want %08x: the store is damaged, pack it again", r.ID, r.Offset, got, r.CRC32C)
	}
	return nil
}
