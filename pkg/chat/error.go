package chat

import "fmt"

// An UnsupportedError says that a template uses what this package does not
// render as Python does, or that it is out of bounds.
type UnsupportedError struct {
	Name   string // of the template
	Line   int    // 0 if unknown
	Reason string
}

func (e *UnsupportedError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: the chat template has %s", e.Name, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s: the chat template has %s", e.Name, e.Reason)
}

// ExitCode is that of a refusal.
func (e *UnsupportedError) ExitCode() int { return 1 }

// A RaisedError is what the template itself says of the messages, by
// raise_exception: "roles must alternate".
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return "the chat template refuses the messages: " + e.Message }

// ExitCode is that of a refusal.
func (e *RaisedError) ExitCode() int { return 1 }

func unsupported(line int, format string, args ...any) *UnsupportedError {
	return &UnsupportedError{Line: line, Reason: fmt.Sprintf(format, args...)}
}
