package cli

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// streamBuffer is how much of a stream waits to be written together.
const streamBuffer = 64 << 10

// Stream is a stream of lines on its way out, such as a trace. Unlike a document it can be read while it grows, and what
// was written before an error or a signal stays; it always ends after a whole line. What a file held before goes when the
// first lines come, or at Close; Abort before that leaves it.
type Stream struct {
	name    string
	w       io.Writer
	file    *os.File // nil for stdout
	zw      *zstd.Encoder
	created bool // the file was not there before
	begun   bool // what the file held before is gone
	buf     []byte
	err     error // first error, final
}

// CreateStream begins a stream to a path, or to stdout if that is "" or "-". That the path can't be written is an error
// here. A file that was read as an input is refused, since it would be cut off before anybody knows whether the new
// content is any good. A name *.zst compresses.
func (e *Env) CreateStream(path string) (*Stream, error) {
	if path == "" || path == "-" {
		return &Stream{name: "stdout", w: e.Stdout}, nil
	}
	if info, err := os.Stat(path); err == nil {
		switch {
		case info.IsDir():
			return nil, Usage("%s: is a directory", path)
		case e.wasRead(info):
			return nil, Usage("%s: is an input of this command too", path)
		}
	}
	_, err := os.Lstat(path)
	created := errors.Is(err, fs.ErrNotExist)
	f, err := Await(e.ctx, func() (*os.File, error) { return os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) })
	if err != nil {
		return nil, ioError(path, err)
	}
	s := &Stream{name: path, w: f, file: f, created: created}
	if strings.HasSuffix(path, zstdSuffix) {
		if s.zw, err = zstd.NewWriter(f, zstd.WithEncoderConcurrency(1)); err != nil {
			f.Close()
			return nil, IO("%s: %w", path, err)
		}
		s.w = s.zw
	}
	return s, nil
}

// Write takes whole lines or parts of them. They are written together now and then, at Flush and at Close.
func (s *Stream) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.buf = append(s.buf, p...)
	if len(s.buf) >= streamBuffer {
		s.writeLines()
	}
	return len(p), s.err
}

// Flush writes all whole lines, for somebody who waits for them.
func (s *Stream) Flush() error {
	s.writeLines()
	if s.zw != nil && s.err == nil {
		s.fail(s.zw.Flush())
	}
	return s.err
}

// Close writes all whole lines and closes the file.
func (s *Stream) Close() error {
	s.writeLines()
	s.begin()
	if s.zw != nil {
		s.fail(s.zw.Close())
	}
	if s.file != nil {
		s.fail(s.file.Close())
	}
	return s.err
}

// Abort closes the file. If nothing was written yet, it is as it was before the stream.
func (s *Stream) Abort() {
	if s.file == nil {
		return
	}
	if !s.begun && s.created {
		os.Remove(s.name)
	}
	s.file.Close()
}

// begin drops what a regular file held before.
func (s *Stream) begin() {
	if s.file == nil || s.begun || s.err != nil {
		return
	}
	s.begun = true
	if info, err := s.file.Stat(); err == nil && info.Mode().IsRegular() {
		s.fail(s.file.Truncate(0))
	}
}

func (s *Stream) writeLines() {
	if s.err != nil {
		return
	}
	whole := bytes.LastIndexByte(s.buf, '\n') + 1
	if whole == 0 {
		return
	}
	if s.begin(); s.err != nil {
		return
	}
	_, err := s.w.Write(s.buf[:whole])
	s.fail(err)
	s.buf = append(s.buf[:0], s.buf[whole:]...)
}

func (s *Stream) fail(err error) {
	if err != nil && s.err == nil {
		s.err = ioError(s.name, err)
	}
}

// wasRead reports whether a regular file was read as an input.
func (e *Env) wasRead(info os.FileInfo) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, in := range e.inputs {
		if os.SameFile(in, info) {
			return true
		}
	}
	return false
}
