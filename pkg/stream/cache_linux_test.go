package stream

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reading leaves nothing in the page cache, whether the file system takes
// direct reads or not.
func TestReadsLeaveNoCache(t *testing.T) {
	path, data := writeFile(t, t.TempDir(), 300_001)
	plain, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := Open(path, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	for _, f := range []*StoreFile{direct, {fd: plain, name: path, align: 1}} {
		q := readWhole(t, f, data)
		if least := int64(len(data)); q.ReadBytes != least {
			t.Errorf("direct %v: read %d bytes of %d", f.direct, q.ReadBytes, least)
		}
		if n := cachedPages(t, path, len(data)); n > 0 {
			t.Errorf("direct %v: %d pages are cached", f.direct, n)
		}
	}
	unix.Close(plain)
}

// cachedPages counts a file's pages in the page cache.
func cachedPages(t *testing.T, path string, size int) (n int) {
	fd, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	view, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(view)
	present := make([]byte, (size+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&view[0])), uintptr(size), uintptr(unsafe.Pointer(&present[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range present {
		n += int(p & 1)
	}
	return n
}
