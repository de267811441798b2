package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// Exit codes. A process that a signal interrupts ends with 128 plus its number: 130 for SIGINT, 143 for SIGTERM.
const (
	ExitOK       = 0
	ExitNo       = 1  // the answer is no: infeasible, refused before work began, a mismatch
	ExitUsage    = 2  // the command line is wrong
	ExitDocument = 3  // an input document is not what it should be
	ExitIO       = 4  // reading or writing failed, a file is corrupt, a device is out of memory
	ExitAboveCap = 5  // the run ended, but its measured peak was above the cap
	ExitInternal = 70 // a defect of the tool
)

// codedError is an error with its exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }
func (e *codedError) ExitCode() int { return e.code }

// hintedError is an error with a remedy to print below it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// Errorf makes an error with its exit code, from a format as of [fmt.Errorf].
func Errorf(code int, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

// Usage makes an error of the command line.
func Usage(format string, args ...any) error { return Errorf(ExitUsage, format, args...) }

// No makes the error of a "no": the tool did its work and the answer is negative.
func No(format string, args ...any) error { return Errorf(ExitNo, format, args...) }

// BadDocument makes an error of an input document.
func BadDocument(format string, args ...any) error { return Errorf(ExitDocument, format, args...) }

// IO makes an error of reading or writing, or of corruption.
func IO(format string, args ...any) error { return Errorf(ExitIO, format, args...) }

// AboveCap makes the error of a run whose measured peak was above its cap.
func AboveCap(format string, args ...any) error { return Errorf(ExitAboveCap, format, args...) }

// WithHint adds a remedy, printed as a line of its own below the error. A nil error stays nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// ExitCode is the exit code of an error: the one it was made with or that its type tells by a method ExitCode() int;
// else [ExitIO] for errors of the operating system, [ExitDocument] for a [*jsonio.Error], and [ExitIO] for other files
// that end too soon. All others are [ExitInternal]: an error that nobody has put into a class is a defect.
func ExitCode(err error) int {
	var coded interface{ ExitCode() int }
	var document *jsonio.Error
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	var errno syscall.Errno
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &path), errors.As(err, &link), errors.As(err, &call), errors.As(err, &errno):
		return ExitIO
	case errors.As(err, &document):
		return ExitDocument
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrShortWrite):
		return ExitIO
	}
	return ExitInternal
}

// report prints an error and returns its exit code. An error after a signal is the signal's.
func (e *Env) report(err error) int {
	if err == nil {
		err = e.stdout.err
	}
	if err == nil {
		return ExitOK
	}
	code := ExitCode(err)
	if cause, ok := errors.AsType[*interruption](context.Cause(e.ctx)); ok {
		code = cause.ExitCode()
		if errors.Is(err, context.Canceled) {
			err = cause
		}
	}
	e.message("error", oneLine(err.Error()))
	for hinted := (*hintedError)(nil); errors.As(err, &hinted); err = hinted.err {
		e.message("hint", hinted.hint)
	}
	return code
}

// maxErrorBytes bounds the line of an error, which may quote its input.
const maxErrorBytes = 2000

// oneLine makes one line of an error's text: what it quotes from outside can be long, have several lines or move a
// terminal's cursor. Joined errors are separated by semicolons, equal ones said once.
func oneLine(text string) string {
	if half := maxErrorBytes / 2; len(text) > maxErrorBytes {
		text = text[:half] + " ... " + text[len(text)-half:]
	}
	text = strings.Join(slices.Compact(strings.Split(text, "\n")), "; ")
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || r == utf8.RuneError {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
