// Package faultfs is a file system that fails on purpose, for tests: calls
// return errors, writes stop half-way, and what was not synced is lost in a
// power cut (see powercut.go).
package faultfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"substrate/internal/vfs"
)

// NoSpace is the error of a full disk.
const NoSpace = syscall.ENOSPC

// FS passes calls on to another file system until one is to fail. Syncs only
// note what they would make durable: tests need no real ones.
type FS struct {
	vfs.FS

	mu     sync.Mutex
	calls  int
	failAt int // number of the call to fail, from 1; 0: none
	err    error
	sticky bool
	volatile
}

// New wraps a file system.
func New(base vfs.FS) *FS { return &FS{FS: base, volatile: newVolatile()} }

// FailAt makes the n-th call from now fail, and with sticky all that follow.
// A write that fails writes the first half of its bytes.
func (f *FS) FailAt(n int, err error, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.failAt, f.err, f.sticky = 0, n, err, sticky
}

// Calls is the number of calls since FailAt or New.
func (f *FS) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// call counts a call and returns its error.
func (f *FS) call(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.failAt == 0 || f.calls < f.failAt || f.calls > f.failAt && !f.sticky {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: f.err}
}

func (f *FS) Open(name string) (vfs.File, error) {
	if err := f.call("open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name)
	return f.wrap(name, file), err
}

func (f *FS) Edit(name string) (vfs.File, error) {
	if err := f.call("open", name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.edited(name)
	f.mu.Unlock()
	file, err := f.FS.Edit(name)
	return f.wrap(name, file), err
}

func (f *FS) MkdirAll(name string) error {
	if err := f.call("mkdir", name); err != nil {
		return err
	}
	f.mu.Lock()
	for folder := name; !exists(folder); folder = filepath.Dir(folder) {
		f.created(folder)
	}
	f.mu.Unlock()
	return f.FS.MkdirAll(name)
}

func (f *FS) Rename(from, to string) error {
	if err := f.call("rename", from); err != nil {
		return err
	}
	if err := f.FS.Rename(from, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renamed(from, to)
	return nil
}

func (f *FS) Link(from, to string) error {
	if err := f.call("link", to); err != nil {
		return err
	}
	if err := f.FS.Link(from, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created(to)
	return nil
}

func (f *FS) Remove(name string) error {
	if err := f.call("remove", name); err != nil {
		return err
	}
	f.mu.Lock()
	f.removed(name)
	f.mu.Unlock()
	return f.FS.Remove(name)
}

func (f *FS) RemoveAll(name string) error {
	if err := f.call("remove", name); err != nil {
		return err
	}
	f.mu.Lock()
	f.removed(name)
	f.mu.Unlock()
	return f.FS.RemoveAll(name)
}

func (f *FS) SyncDir(name string) error {
	if err := f.call("sync", name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncedDir(name)
	return nil
}

func (f *FS) wrap(name string, file vfs.File) vfs.File {
	if file == nil {
		return nil
	}
	return &faultFile{File: file, fs: f, name: name}
}

type faultFile struct {
	vfs.File
	fs   *FS
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.call("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.call("write", f.name); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.call("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Sync() error {
	if err := f.fs.call("sync", f.name); err != nil {
		return err
	}
	content, err := os.ReadFile(f.name)
	if err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.synced[f.name] = content
	return nil
}

func (f *faultFile) Close() error {
	err := f.fs.call("close", f.name)
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}
