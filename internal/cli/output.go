package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Output is a document on its way out: whole or not at all. What is written goes to its place by Commit; without it, or
// after an error, a panic or a signal, there is nothing. A regular file is replaced atomically, through a temporary
// file beside it. For stdout, pipes and devices the bytes are held in memory until Commit. A name *.zst compresses.
type Output struct {
	env  *Env
	name string

	w    io.Writer     // where Write goes
	zw   *zstd.Encoder // nil if not compressed
	held bytes.Buffer  // stdout, pipe or device
	file *os.File      // temporary file, nil if held
	dest string        // path that the temporary file will have, or of the pipe or device; "" is stdout
}

// WriteDocument writes a whole document to a path, or to stdout if that is "" or "-".
func (e *Env) WriteDocument(path string, b []byte) error {
	out, err := e.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	return out.Finish(b)
}

// Finish writes a whole document and commits it.
func (o *Output) Finish(b []byte) error {
	if _, err := o.Write(b); err != nil {
		return err
	}
	return o.Commit()
}

// Create begins a document that will go to a path, or to stdout if that is "" or "-". That the path can't be written is
// an error here, before the work whose result it takes. Always defer Abort.
func (e *Env) Create(path string) (*Output, error) {
	o := &Output{env: e, name: path}
	if err := o.open(path); err != nil {
		return nil, err
	}
	o.w = &o.held
	if o.file != nil {
		o.w = o.file
	}
	if strings.HasSuffix(path, zstdSuffix) {
		zw, err := zstd.NewWriter(o.w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			o.Abort()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		o.w, o.zw = zw, zw
	}
	return o, nil
}

// open decides what the path is and, for a regular file, makes the temporary file.
func (o *Output) open(path string) error {
	if path == "" || path == "-" {
		o.name = "stdout"
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir(), strings.HasSuffix(path, "/"):
		return WithHint(Usage("%s: is a directory", path), "-o takes the name of a file")
	case err == nil && o.env.isStdout(info):
		return nil // /dev/stdout, where a rename would cut a redirected file off
	case err == nil && !info.Mode().IsRegular():
		o.dest = path
		return nil
	case err == nil:
		if err := unix.Access(path, unix.W_OK); err != nil {
			return IO("%s: %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return ioError(path, err)
	}
	if o.dest, err = followLinks(path); err != nil {
		return ioError(path, err)
	}
	return o.openTemporary(info)
}

// openTemporary makes the file that will replace o.dest, with the mode of the old one if there is one.
func (o *Output) openTemporary(old os.FileInfo) error {
	for {
		temp := fmt.Sprintf("%s.%08x.partial", o.dest, rand.Uint32())
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return ioError(o.name, err)
		}
		o.file = f
		o.env.mu.Lock()
		o.env.outputs[o] = true
		o.env.mu.Unlock()
		if old != nil {
			if err := f.Chmod(old.Mode().Perm()); err != nil {
				o.Abort()
				return ioError(o.name, err)
			}
		}
		return nil
	}
}

// Write takes the next bytes of the document.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, ioError(o.name, err)
	}
	return n, nil
}

// Commit puts the document into its place, safe from a power cut where it is a regular file.
func (o *Output) Commit() error {
	defer o.Abort()
	if err := o.env.ctx.Err(); err != nil {
		return err
	}
	if o.zw != nil {
		if err := o.zw.Close(); err != nil {
			return ioError(o.name, err)
		}
	}
	switch {
	case o.file != nil:
		return o.commitFile()
	case o.dest != "":
		return o.commitThrough()
	}
	_, err := o.env.Stdout.Write(o.held.Bytes())
	return err
}

func (o *Output) commitFile() error {
	temp := o.file.Name()
	err := o.file.Sync()
	if err == nil {
		err = o.file.Close()
	}
	if err == nil {
		err = os.Rename(temp, o.dest)
	}
	if err != nil {
		return ioError(o.name, err)
	}
	o.forget()
	if err := syncFolder(filepath.Dir(o.dest)); err != nil {
		return ioError(o.name, err)
	}
	return nil
}

// commitThrough writes to a pipe or device. To open a pipe waits for its reader.
func (o *Output) commitThrough() error {
	_, err := Await(o.env.ctx, func() (struct{}, error) {
		f, err := os.OpenFile(o.dest, os.O_WRONLY, 0)
		if err != nil {
			return struct{}{}, err
		}
		_, err = f.Write(o.held.Bytes())
		return struct{}{}, errors.Join(err, f.Close())
	})
	if o.env.ctx.Err() != nil {
		return err
	}
	return ioError(o.name, err)
}

// Abort drops the document. After Commit it does nothing.
func (o *Output) Abort() {
	if !o.forget() {
		return
	}
	o.file.Close()
	os.Remove(o.file.Name())
}

// forget takes the output off the list of those to discard, and reports whether it was on it.
func (o *Output) forget() bool {
	o.env.mu.Lock()
	defer o.env.mu.Unlock()
	open := o.env.outputs[o]
	delete(o.env.outputs, o)
	return open
}

// discard drops every document that was not committed.
func (e *Env) discard() {
	e.mu.Lock()
	var open []*Output
	for o := range e.outputs {
		open = append(open, o)
	}
	e.mu.Unlock()
	for _, o := range open {
		o.Abort()
	}
}

// isStdout reports whether a path's file is what stdout is open on.
func (e *Env) isStdout(info os.FileInfo) bool {
	f, ok := e.stdout.w.(*os.File)
	if !ok {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(own, info)
}

// noteInput remembers a file that was read.
func (e *Env) noteInput(info os.FileInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inputs = append(e.inputs, info)
}

// followLinks is the path that a symbolic link leads to in the end, which may not exist; other paths stay.
func followLinks(path string) (string, error) {
	const most = 40 // as Linux
	for range most {
		target, err := os.Readlink(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", unix.ELOOP
}

// syncFolder makes a rename in a folder last. File systems that cannot do it say EINVAL.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
