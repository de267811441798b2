package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapAlign is the alignment in bytes of buffers from Map: a page on Apple
// Silicon, four on x86.
const MapAlign = 16 << 10

// Map returns n bytes of zeroed memory outside the Go heap, aligned to
// MapAlign, every page present: memory that is missing shows here, not in the
// middle of a run. Give it back with Unmap.
func Map(n int64) ([]byte, error) {
	if n <= 0 || int64(int(n)) != n {
		return nil, fmt.Errorf("map %d bytes: not a size", n)
	}
	// The kernel aligns to its page; map enough to cut an aligned range out.
	page := os.Getpagesize()
	slack := max(0, MapAlign-page)
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(n)+uintptr(slack), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	head := -uintptr(whole) & (MapAlign - 1)
	start := unsafe.Add(whole, head)
	end := (head + uintptr(n) + uintptr(page) - 1) &^ (uintptr(page) - 1)
	total := (uintptr(n) + uintptr(slack) + uintptr(page) - 1) &^ (uintptr(page) - 1)
	if head > 0 {
		err = unix.MunmapPtr(whole, head)
	}
	if err == nil && end < total {
		err = unix.MunmapPtr(unsafe.Add(whole, end), total-end)
	}
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	buf := unsafe.Slice((*byte)(start), n)
	populate(buf, page)
	return buf, nil
}

// Unmap frees a buffer of Map.
func Unmap(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(buf)), uintptr(len(buf))); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(buf), err)
	}
	return nil
}

// populate makes every page of buf present.
func populate(buf []byte, page int) {
	if populated(buf) {
		return
	}
	for i := 0; i < len(buf); i += page {
		buf[i] = 0
	}
}
