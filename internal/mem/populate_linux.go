package mem

import "golang.org/x/sys/unix"

// populated asks the kernel (5.14 and later) for all pages of buf at once.
func populated(buf []byte) bool {
	return unix.Madvise(buf, unix.MADV_POPULATE_WRITE) == nil
}
