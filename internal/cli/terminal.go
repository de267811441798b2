package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// terminal is stderr: lines of text and, if it is a terminal, one status line below them that is updated in place.
type terminal struct {
	mu     sync.Mutex
	w      io.Writer
	live   bool // cursor movement works
	color  bool
	status string
}

func newTerminal(w io.Writer) *terminal {
	live := isTerminal(w) && os.Getenv("TERM") != "dumb"
	return &terminal{w: w, live: live, color: live && os.Getenv("NO_COLOR") == ""}
}

const eraseLine = "\r\x1b[K"

// printLine prints a line above the status line.
func (t *terminal) printLine(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := text + "\n"
	if t.status != "" {
		line = eraseLine + line + t.status
	}
	io.WriteString(t.w, line)
}

// prompt prints text without a line feed, for somebody to type after it. Not on
// a terminal it does nothing.
func (t *terminal) prompt(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if isTerminal(t.w) {
		io.WriteString(t.w, text)
	}
}

// setStatus replaces the status line, "" erases it. Without a live terminal it does nothing.
func (t *terminal) setStatus(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live || text == t.status {
		return
	}
	if runes := []rune(text); len(runes) >= t.width() {
		text = string(runes[:t.width()-1])
	}
	io.WriteString(t.w, eraseLine+text)
	t.status = text
}

// styled is a message's label, coloured where that is wanted.
func (t *terminal) styled(label string) string {
	if !t.color {
		return label
	}
	switch label {
	case "error":
		return "\x1b[31m" + label + "\x1b[0m"
	case "warning":
		return "\x1b[33m" + label + "\x1b[0m"
	}
	return label
}

func (t *terminal) width() int {
	const fallback = 80
	f, ok := t.w.(*os.File)
	if !ok {
		return fallback
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return fallback
	}
	return int(size.Col)
}

// isTerminal reports whether a stream is a file that is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok || f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}
