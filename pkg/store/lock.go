package store

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// BusyError is the refusal to build a store that is being built.
type BusyError struct{ Path string }

func (e *BusyError) Error() string { return e.Path + ": another sb-pack is building this store" }

// ExitCode is that of a "no".
func (e *BusyError) ExitCode() int { return 1 }

// lock takes the lock of a folder that is being built. The kernel drops it
// when the process dies. The file stays where it is until the folder becomes
// a store: removing it then, while the lock is held, is what makes a lock
// taken on it worthless, so that is looked for after taking.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &BusyError{filepath.Dir(path)}
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(mine, there) {
			err = &BusyError{filepath.Dir(path)}
		}
	}
	if errors.Is(err, os.ErrNotExist) { // the folder became a store just now
		err = &BusyError{filepath.Dir(path)}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
