package stream

import "golang.org/x/sys/unix"

// fallbackAlign is assumed where the kernel (before 6.1) or the file system
// does not tell what direct reads need.
const fallbackAlign = 4096

func openDirect(path string, align int) (*StoreFile, error) {
	if fd, err := open(path, unix.O_DIRECT); err == nil {
		if need := directAlign(fd); need > 0 && need <= align {
			return &StoreFile{fd: fd, name: path, direct: true, align: need}, nil
		}
		unix.Close(fd)
	}
	fd, err := open(path, 0)
	if err != nil {
		return nil, err
	}
	// The kernel should not read what nobody asked for, since it would stay.
	unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	return &StoreFile{fd: fd, name: path, align: 1}, nil
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// directAlign is the multiple that addresses, offsets and lengths of direct
// reads must be; 0 if the file does not take them.
func directAlign(fd int) int {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return fallbackAlign
	}
	need := max(st.Dio_mem_align, st.Dio_offset_align)
	if st.Dio_mem_align == 0 || need&(need-1) != 0 {
		return 0
	}
	return int(need)
}

// dropCache tells the kernel that the pages of a range are not needed again.
func dropCache(fd int, offset, n int64) {
	unix.Fadvise(fd, offset, n, unix.FADV_DONTNEED)
}
