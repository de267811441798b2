package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// MaxDocumentBytes is the greatest size of an input document, after decompression. The largest real ones, tables of
// models with tens of thousands of experts, have some tens of MiB.
const MaxDocumentBytes = 512 << 20

const (
	stdinName  = "stdin"
	zstdSuffix = ".zst"
	zstdMagic  = "\x28\xb5\x2f\xfd"

	// maxWindowBytes is what "zstd --long=27", the most that the command takes without a flag, needs to decompress.
	maxWindowBytes = 128 << 20
)

// ReadDocument reads the input document that an argument names: a file, or stdin for "-" and "". The name is for
// messages. A file named *.zst, and stdin that begins as zstd does, is decompressed.
func (e *Env) ReadDocument(arg string) (name string, b []byte, err error) {
	return e.readDocument(arg, MaxDocumentBytes)
}

func (e *Env) readDocument(arg string, limit int64) (name string, b []byte, err error) {
	name = arg
	if arg == "" || arg == "-" {
		name = stdinName
		if e.StdinIsTerminal() {
			return name, nil, WithHint(Usage("stdin is a terminal, a document is expected"), "name a file or pipe a document in")
		}
	}
	b, err = Await(e.ctx, func() ([]byte, error) { return e.readAll(arg, name, limit) })
	if err != nil {
		return name, nil, err
	}
	if strings.HasSuffix(name, zstdSuffix) || name == stdinName && bytes.HasPrefix(b, []byte(zstdMagic)) {
		if b, err = decompress(name, b, limit); err != nil {
			return name, nil, err
		}
	}
	if len(b) == 0 {
		err = BadDocument("%s: empty, a document is expected", name)
		if name == stdinName {
			err = WithHint(err, "perhaps the command before the pipe failed")
		}
		return name, nil, err
	}
	return name, b, nil
}

// readAll reads the whole input, at most limit bytes.
func (e *Env) readAll(arg, name string, limit int64) ([]byte, error) {
	r := e.stdin
	var size int64
	if name != stdinName {
		f, err := os.Open(arg)
		if err != nil {
			return nil, ioError(name, err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			if size = info.Size(); size > limit {
				return nil, BadDocument("%s: %s, more than %s", name, Size(size), Size(limit))
			}
			e.noteInput(info)
		}
		r = f
	}
	b, err := readDocument(r, size, limit)
	if err != nil {
		return nil, ioError(name, err)
	}
	if int64(len(b)) > limit {
		return nil, BadDocument("%s: more than %s", name, Size(limit))
	}
	return b, nil
}

// startBytes is how much of an input decides whether it may be a document.
const startBytes = 64 << 10

// readDocument reads r to its end, or one byte more than limit. The size is known for a regular file, else 0.
//
// Of an input that does not begin as a document does, only the start is returned, whose reader will say what is wrong
// with it: an endless input, or a small one that decompresses to a huge one, takes neither time nor memory then.
func readDocument(r io.Reader, size, limit int64) ([]byte, error) {
	start, err := io.ReadAll(io.LimitReader(r, min(startBytes, limit+1)))
	if err != nil || !mayBeDocument(start) {
		return start, err
	}
	whole := io.MultiReader(bytes.NewReader(start), io.LimitReader(r, limit+1-int64(len(start))))
	if size == 0 {
		return io.ReadAll(whole)
	}
	var buf bytes.Buffer
	buf.Grow(int(size) + bytes.MinRead)
	_, err = buf.ReadFrom(whole)
	return buf.Bytes(), err
}

// mayBeDocument reports whether bytes are the start of a JSON object or of zstd data.
func mayBeDocument(start []byte) bool {
	object := bytes.HasPrefix(bytes.TrimLeft(start, " \t\r\n"), []byte("{"))
	return object || bytes.HasPrefix(start, []byte(zstdMagic))
}

// decompress expands zstd frames to at most limit bytes.
func decompress(name string, b []byte, limit int64) ([]byte, error) {
	d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, BadDocument("%s: %w", name, err)
	}
	defer d.Close()
	out, err := readDocument(d, 0, limit)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, BadDocument("%s: the zstd data ends too soon", name)
	case err != nil:
		return nil, BadDocument("%s: not sound zstd data: %w", name, err)
	case int64(len(out)) > limit:
		return nil, BadDocument("%s: more than %s once decompressed", name, Size(limit))
	}
	return out, nil
}

// Await calls f, which may block or compute for long, and gives up waiting for it when the context ends. f goes on behind
// the back of the caller then, who is about to end the process. A panic of f is one of the caller's.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
		panic any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.panic = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.value, r.err = f()
	}()
	select {
	case r := <-done:
		if r.panic != nil {
			panic(r.panic)
		}
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// ioError is an error of a file or stream, under its name; one that has been through here stays as it is.
func ioError(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*codedError](err); ok {
		return err
	}
	return IO("%s: %w", name, cause(err))
}

// cause is what the operating system said, without the operation and the path, which our messages name themselves.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
