package tokenizer

import (
	"substrate/internal/jsonio"
)

// split cuts text at the matches of a pattern. What is neither part of a match nor between two matches does not exist: the
// text is a sequence of segments, matches and gaps, and behavior says how they become pieces.
type split struct {
	pattern  pattern
	behavior splitBehavior
	invert   bool // take gaps for matches and matches for gaps
}

// splitBehavior says what becomes of a match.
type splitBehavior string

const (
	removed            splitBehavior = "Removed"            // it is dropped
	isolated           splitBehavior = "Isolated"           // it is a piece of its own
	mergedWithPrevious splitBehavior = "MergedWithPrevious" // it ends the piece of the gap before
	mergedWithNext     splitBehavior = "MergedWithNext"     // it starts the piece of the gap after
	contiguous         splitBehavior = "Contiguous"         // matches side by side are one piece
)

func (b splitBehavior) check() error {
	switch b {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return nil
	}
	return jsonio.Errorf("", "/behavior", "split behavior %q is not supported", b)
}

func newSplit(raw jsonio.RawValue) (preTokenizer, error) {
	var c struct {
		typed
		Pattern  patternConfig `json:"pattern"`
		Behavior splitBehavior `json:"behavior"`
		Invert   bool          `json:"invert"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if err := c.Behavior.check(); err != nil {
		return nil, err
	}
	p, err := c.Pattern.compile()
	if err != nil {
		return nil, jsonio.Within("", "/pattern", err)
	}
	return &split{p, c.Behavior, c.Invert}, nil
}

func (s *split) split(p piece, emit func(piece) error) error {
	out := splitter{behavior: s.behavior, p: p, emit: emit}
	done := 0
	err := s.pattern.find(p.text, func(start, end int) error {
		if start > done {
			if err := out.segment(done, start, s.invert); err != nil {
				return err
			}
		}
		done = end
		return out.segment(start, end, !s.invert)
	})
	if err != nil {
		return err
	}
	if done < len(p.text) {
		if err := out.segment(done, len(p.text), s.invert); err != nil {
			return err
		}
	}
	return out.flush()
}

// splitter makes pieces of the segments of one text.
type splitter struct {
	behavior splitBehavior
	p        piece
	emit     func(piece) error

	// A piece that the next segment may still join, and whether its last segment is a match.
	start, end       int
	waiting, isMatch bool
}

func (s *splitter) segment(start, end int, match bool) error {
	var join bool
	switch s.behavior {
	case removed:
		if match {
			return nil
		}
	case mergedWithPrevious:
		join = match && !s.isMatch
	case mergedWithNext:
		join = !match && s.isMatch
	case contiguous:
		join = match == s.isMatch
	}
	if s.waiting && join {
		s.end, s.isMatch = end, match
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.start, s.end, s.waiting, s.isMatch = start, end, true, match
	return nil
}

func (s *splitter) flush() error {
	if !s.waiting || s.start == s.end {
		return nil
	}
	s.waiting = false
	return s.emit(s.p.from(s.start, s.end))
}
