package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Env is what a verb sees of the world outside: the streams, and where documents come from and go to.
type Env struct {
	Stdout  io.Writer // the result, and nothing else; an error of writing is remembered and decides the exit code
	Quiet   bool      // -q: no progress, no notes
	Verbose bool      // -v: Debugf prints

	tool   string
	ctx    context.Context // ends at SIGINT and SIGTERM
	stdin  io.Reader
	stdout *stickyWriter
	term   *terminal
	stop   func()

	mu      sync.Mutex
	outputs map[*Output]bool // not yet committed
	inputs  []os.FileInfo    // files that were read
}

func newEnv(tool string, stdin io.Reader, stdout, stderr io.Writer) *Env {
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &Env{tool: tool, ctx: ctx, stdin: stdin, stdout: &stickyWriter{w: stdout}, term: newTerminal(stderr), outputs: map[*Output]bool{}}
	e.Stdout = e.stdout
	stopSignals := e.watchSignals(cancel)
	e.stop = func() {
		stopSignals()
		cancel(nil)
	}
	return e
}

// close ends what a verb left open: outputs that were not committed are gone, progress is erased.
func (e *Env) close() {
	e.stop()
	e.discard()
	e.term.setStatus("")
}

// Notef prints a remark on stderr, not with -q.
func (e *Env) Notef(format string, args ...any) {
	if !e.Quiet {
		e.message("note", fmt.Sprintf(format, args...))
	}
}

// Warnf prints a warning on stderr, also with -q.
func (e *Env) Warnf(format string, args ...any) {
	e.message("warning", fmt.Sprintf(format, args...))
}

// Debugf prints a detail on stderr, with -v only.
func (e *Env) Debugf(format string, args ...any) {
	if e.Verbose {
		e.message("debug", fmt.Sprintf(format, args...))
	}
}

// message prints "tool: label: text".
func (e *Env) message(label, text string) {
	e.term.printLine(e.tool + ": " + e.term.styled(label) + ": " + strings.TrimRight(text, "\n"))
}

// print writes text to stdout.
func (e *Env) print(text string) error {
	_, err := io.WriteString(e.Stdout, text)
	return err
}

// StdoutIsTerminal reports whether somebody reads stdout as it comes.
func (e *Env) StdoutIsTerminal() bool { return isTerminal(e.stdout.w) }

// Stdin is the standard input as it is, for a verb that takes something else than a document there, such as a prompt.
func (e *Env) Stdin() io.Reader { return e.stdin }

// Prompt asks for input on the terminal, also with -q.
func (e *Env) Prompt(text string) { e.term.prompt(text) }

// StdinIsTerminal reports whether stdin would wait for somebody to type.
func (e *Env) StdinIsTerminal() bool { return isTerminal(e.stdin) }

// stickyWriter remembers the first error, so that nobody has to check each Fprintf of a report.
type stickyWriter struct {
	w   io.Writer
	err error
}

func (s *stickyWriter) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.err = ioError("stdout", err)
		return n, s.err
	}
	return n, nil
}
