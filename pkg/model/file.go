package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// file is one open file of a checkpoint. It is safe for concurrent use.
type file struct {
	r    io.ReaderAt
	name string // base name, for messages
	size int64  // when it was opened
	c    io.Closer
}

func openFile(path string) (*file, error) {
	// Looked at first: to open a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{File: path, Offset: -1, Reason: "not a regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, err
	}
	return &file{r: f, name: filepath.Base(path), size: info.Size(), c: f}, nil
}

// readAt fills dst from offset, a place that the header promised.
func (f *file) readAt(dst []byte, offset int64) error {
	n, err := f.r.ReadAt(dst, offset)
	switch {
	case n == len(dst):
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return &Error{File: f.name, Offset: offset + int64(n), Damaged: true,
			Reason: fmt.Sprintf("the file ends here, it had %d bytes when it was opened", f.size)}
	}
	return fmt.Errorf("%s: offset %d: %w", f.name, offset+int64(n), err)
}

// readSmall reads a whole file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.c.Close()
	if f.size > limit {
		return nil, &Error{File: f.name, Offset: -1, Reason: fmt.Sprintf("%d bytes, more than the %d that such a file may have", f.size, limit)}
	}
	b := make([]byte, f.size)
	return b, f.readAt(b, 0)
}

// readOptional is readSmall for a file that need not exist: nil if it doesn't.
func readOptional(path string, limit int64) ([]byte, error) {
	b, err := readSmall(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
