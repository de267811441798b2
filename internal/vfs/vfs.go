// Package vfs is the few calls of the file system that writing a store needs,
// as an interface, so that tests can make them fail (see internal/faultfs).
package vfs

import (
	"io"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	Sync() error
}

// FS is a file system. Names are paths of the operating system.
type FS interface {
	// Open opens a file to read it.
	Open(name string) (File, error)
	// Edit opens a file to read and write it, and makes it if it is missing.
	Edit(name string) (File, error)
	Stat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	MkdirAll(name string) error
	// Rename moves a file or folder over what is there: a file over a file,
	// a folder over an empty folder.
	Rename(from, to string) error
	// Link gives a file a second name on the same file system.
	Link(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// Free is the space for files in bytes at a folder, the largest number
	// where the file system does not say.
	Free(name string) (int64, error)
}

// OS is the operating system's file system.
type OS struct{}

func (OS) Open(name string) (File, error) { return open(os.Open(name)) }

func (OS) Edit(name string) (File, error) {
	return open(os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666))
}

// open keeps a nil *os.File from becoming a File.
func open(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (OS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (OS) MkdirAll(name string) error                 { return os.MkdirAll(name, 0o777) }
func (OS) Link(from, to string) error                 { return os.Link(from, to) }
func (OS) Remove(name string) error                   { return os.Remove(name) }
func (OS) RemoveAll(name string) error                { return os.RemoveAll(name) }

// Rename calls the kernel: os.Rename refuses to replace an empty folder.
func (OS) Rename(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (OS) Free(name string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	if s.Blocks == 0 { // /proc and its like do not count
		return math.MaxInt64, nil
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
