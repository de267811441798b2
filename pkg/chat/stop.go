package chat

import "strings"

// Stop finds the first of some strings in text that comes in pieces, as a
// model's tokens do: a stop string may begin in one piece and end in another.
// Text that may be the start of one is held back. The first is the one that
// ends first, and of several that end together the longest: so the result does
// not depend on where the pieces end.
type Stop struct {
	stops []string
	held  string
	found bool
}

// NewStop looks for strings; empty ones are not among them.
func NewStop(stops []string) *Stop {
	s := &Stop{}
	for _, stop := range stops {
		if stop != "" {
			s.stops = append(s.stops, stop)
		}
	}
	return s
}

// Push takes the next piece. It returns the text that is certain to come
// before any stop string, and whether one was found: then nothing follows.
func (s *Stop) Push(text string) (out string, found bool) {
	switch {
	case s.found:
		return "", true
	case len(s.stops) == 0:
		return text, false
	}
	s.held += text
	start, end := -1, len(s.held)+1
	for _, stop := range s.stops {
		if at := strings.Index(s.held, stop); at >= 0 && (at+len(stop) < end || at+len(stop) == end && at < start) {
			start, end = at, at+len(stop)
		}
	}
	if start >= 0 {
		out, s.held, s.found = s.held[:start], "", true
		return out, true
	}
	keep := 0
	for _, stop := range s.stops {
		keep = max(keep, overlap(s.held, stop))
	}
	out, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return out, false
}

// Flush returns what was held back, since nothing follows.
func (s *Stop) Flush() string {
	text := s.held
	s.held, s.found = "", false
	return text
}

// overlap is the length of the longest end of text that stop begins with.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if strings.HasSuffix(text, stop[:n]) {
			return n
		}
	}
	return 0
}
