package stream

import "golang.org/x/sys/unix"

// openDirect turns caching off: F_NOCACHE reads need no alignment, and are
// fastest at whole pages.
func openDirect(path string, _ int) (*StoreFile, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_NOCACHE, 1)
	return &StoreFile{fd: fd, name: path, direct: err == nil, align: 1}, nil
}

func dropCache(int, int64, int64) {}
