package cli

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// OpenLines opens the input that an argument names, as [Env.ReadDocument] does,
// for lines that need not fit in memory together, such as a trace's. Reading it
// may block: see [Await].
func (e *Env) OpenLines(arg string) (name string, r io.ReadCloser, err error) {
	var f *os.File
	in := e.stdin
	name = arg
	if arg == "" || arg == "-" {
		name = stdinName
		if e.StdinIsTerminal() {
			return name, nil, WithHint(Usage("stdin is a terminal, a document is expected"), "name a file or pipe a document in")
		}
	} else {
		if f, err = os.Open(arg); err != nil {
			return name, nil, ioError(name, err)
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			e.noteInput(info)
		}
		in = f
	}
	l := &lines{name: name, file: f, r: bufio.NewReader(in)}
	start, err := l.r.(*bufio.Reader).Peek(len(zstdMagic))
	if bytes.Equal(start, []byte(zstdMagic)) || err == nil && strings.HasSuffix(name, zstdSuffix) {
		if l.zr, err = zstd.NewReader(l.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindowBytes)); err != nil {
			l.Close()
			return name, nil, BadDocument("%s: %w", name, err)
		}
		l.r = l.zr
	}
	return name, l, l.checkStart()
}

// checkStart refuses what is no JSON from its first byte, which may have
// neither lines nor an end.
func (l *lines) checkStart() error {
	r := bufio.NewReader(l.r)
	l.r = r
	if start, _ := r.Peek(1); len(start) > 0 && start[0] != '{' {
		l.Close()
		return BadDocument("%s: begins with %q, lines of JSON objects are expected", l.name, start)
	}
	return nil
}

// lines is an input that is read as it comes.
type lines struct {
	name string
	file *os.File // nil for stdin
	r    io.Reader
	zr   *zstd.Decoder // nil if the input is not compressed
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	switch {
	case err == nil, err == io.EOF:
		return n, err
	case l.zr != nil:
		return n, BadDocument("%s: not sound zstd data: %w", l.name, err)
	}
	return n, ioError(l.name, err)
}

func (l *lines) Close() error {
	if l.zr != nil {
		l.zr.Close()
	}
	if l.file != nil {
		return l.file.Close()
	}
	return nil
}
