package stream

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A StoreFile is a file opened for reads that leave nothing in the page
// cache.
type StoreFile struct {
	fd     int
	name   string
	direct bool
	align  int
}

// Open opens a file whose reads all keep to multiples of align bytes, a power
// of two. Reads bypass the page cache if the file system can do that at this
// alignment; else each read's pages are dropped after it: see Direct.
func Open(path string, align int) (*StoreFile, error) {
	if align < 1 || align&(align-1) != 0 {
		return nil, fmt.Errorf("open %s: alignment %d is not a power of two", path, align)
	}
	f, err := openDirect(path, align)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}

// Name is the path that the file was opened by.
func (f *StoreFile) Name() string { return f.name }

// Direct reports whether reads bypass the page cache.
func (f *StoreFile) Direct() bool { return f.direct }

// Align is the multiple that reads must keep, 1 if they are not direct.
func (f *StoreFile) Align() int { return f.align }

// ReadAt is one pread(2).
func (f *StoreFile) ReadAt(p []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(f.fd, p, offset)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		if !f.direct {
			dropCache(f.fd, offset, int64(n))
		}
		return n, nil
	}
}

// Close closes the file. No read may be under way.
func (f *StoreFile) Close() error { return unix.Close(f.fd) }
