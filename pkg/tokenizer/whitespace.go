package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// classSplit cuts text where the class of its characters changes, or at each character of a class.
type classSplit struct {
	class    func(r rune) bool
	behavior splitBehavior
}

// newWhitespaceSplit makes words of what stands between white space.
func newWhitespaceSplit(raw jsonio.RawValue) (preTokenizer, error) {
	return &classSplit{unicode.IsSpace, removed}, known(raw)
}

// newPunctuation cuts at characters of punctuation.
func newPunctuation(raw jsonio.RawValue) (preTokenizer, error) {
	c := struct {
		typed
		Behavior splitBehavior `json:"behavior"`
	}{Behavior: isolated}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	return &classSplit{isPunctuation, c.Behavior}, c.Behavior.check()
}

// isPunctuation is P of Unicode and all of ASCII that is neither letter, digit nor space.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && !(r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z')
	}
	return unicode.IsPunct(r)
}

// newDelimiterSplit cuts out a character.
func newDelimiterSplit(raw jsonio.RawValue) (preTokenizer, error) {
	var c struct {
		typed
		Delimiter string `json:"delimiter"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	r, size := utf8.DecodeRuneInString(c.Delimiter)
	if size == 0 || size != len(c.Delimiter) {
		return nil, jsonio.Errorf("", "/delimiter", "%q is not one character", c.Delimiter)
	}
	return &classSplit{func(other rune) bool { return other == r }, removed}, nil
}

func (s *classSplit) split(p piece, emit func(piece) error) error {
	out := splitter{behavior: s.behavior, p: p, emit: emit}
	gap := 0 // where the segment of other characters begins
	for at := 0; at < len(p.text); {
		r, size := rune(p.text[at]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(p.text[at:])
		}
		if s.class(r) {
			if at > gap {
				if err := out.segment(gap, at, false); err != nil {
					return err
				}
			}
			if err := out.segment(at, at+size, true); err != nil {
				return err
			}
			gap = at + size
		}
		at += size
	}
	if gap < len(p.text) {
		if err := out.segment(gap, len(p.text), false); err != nil {
			return err
		}
	}
	return out.flush()
}

// words makes pieces of the runs of word characters and of the runs of what is neither those nor white space.
type words struct{}

func newWords(raw jsonio.RawValue) (preTokenizer, error) { return words{}, known(raw) }

func (words) split(p piece, emit func(piece) error) error {
	const space, word, other = 0, 1, 2
	class := func(r rune) int {
		switch {
		case isWord(r):
			return word
		case unicode.IsSpace(r):
			return space
		}
		return other
	}
	start, kind := 0, space
	for at := 0; at < len(p.text); {
		r, size := utf8.DecodeRune(p.text[at:])
		if c := class(r); c != kind {
			if kind != space {
				if err := emit(p.from(start, at)); err != nil {
					return err
				}
			}
			start, kind = at, c
		}
		at += size
	}
	if kind == space {
		return nil
	}
	return emit(p.from(start, len(p.text)))
}
