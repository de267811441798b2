package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"substrate/internal/jsonio"
)

// pattern finds parts of a text.
type pattern interface {
	// find calls found with the start and end of all matches, in order and without overlap.
	find(text []byte, found func(start, end int) error) error
}

// patternConfig is a "pattern" of a tokenizer.json: a text or a regular expression.
type patternConfig struct {
	String *string `json:"String,omitempty"`
	Regex  *string `json:"Regex,omitempty"`
}

func (c patternConfig) compile() (pattern, error) {
	switch {
	case c.String != nil && c.Regex == nil:
		if *c.String == "" {
			return nil, jsonio.Errorf("", "/String", "an empty pattern matches nothing")
		}
		return literal(*c.String), nil
	case c.Regex != nil && c.String == nil:
		p, err := newRegex(*c.Regex)
		return p, jsonio.Within("", "/Regex", err)
	}
	return nil, jsonio.Errorf("", "", `a pattern needs one member, "String" or "Regex"`)
}

// literal is a pattern that matches itself.
type literal []byte

func (l literal) find(text []byte, found func(start, end int) error) error {
	for at := 0; ; {
		i := bytes.Index(text[at:], l)
		if i < 0 {
			return nil
		}
		if err := found(at+i, at+i+len(l)); err != nil {
			return err
		}
		at += i + len(l)
	}
}

// newRegex returns the scanner of a pattern that has one, else the compiled expression.
func newRegex(expr string) (pattern, error) {
	if s := scannerOf(expr); s != nil {
		return s, nil
	}
	return compileRegex(expr)
}

// regex is a regular expression with lookahead and Unicode classes, as the files have them. It backtracks.
type regex struct {
	re    *regexp2.Regexp
	runes sync.Pool // of *[]rune
}

const (
	// maxRegexBytes bounds an expression; the longest in use has some 400 bytes.
	maxRegexBytes = 1 << 14

	// matchTimeout bounds the search for one match, which a hostile pattern can make take for ever.
	matchTimeout = 5 * time.Second
)

func compileRegex(expr string) (*regex, error) {
	if len(expr) > maxRegexBytes {
		return nil, fmt.Errorf("the expression has %d bytes, more than %d", len(expr), maxRegexBytes)
	}
	// The reference compiles with Oniguruma, whose syntax differs here: better no answer than another one.
	for _, construct := range []string{"&&", "[:", `\h`, `\H`, `\w`, `\W`, `\b`, `\B`} {
		if strings.Contains(expr, construct) {
			return nil, fmt.Errorf("%q in an expression is not supported", construct)
		}
	}
	// In Oniguruma ^ and $ are the ends of lines.
	re, err := regexp2.Compile(expr, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("the expression cannot be compiled: %w", err)
	}
	re.MatchTimeout = matchTimeout
	return &regex{re: re}, nil
}

// find takes a byte that is not UTF-8 for one U+FFFD.
func (r *regex) find(text []byte, found func(start, end int) error) error {
	buf, _ := r.runes.Get().(*[]rune)
	if buf == nil {
		buf = new([]rune)
	}
	defer r.runes.Put(buf)
	runes := (*buf)[:0]
	for at := 0; at < len(text); {
		c, size := utf8.DecodeRune(text[at:])
		runes = append(runes, c)
		at += size
	}
	if cap(runes) <= maxPooledRunes {
		*buf = runes
	}

	// The matches come in order, so that one walk translates their places.
	runeAt, byteAt := 0, 0
	walk := func(to int) int {
		for ; runeAt < to; runeAt++ {
			_, size := utf8.DecodeRune(text[byteAt:])
			byteAt += size
		}
		return byteAt
	}
	var stop error
	err := r.re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		at, size, _ := m.GroupRange(0)
		start := walk(at)
		end := walk(at + size)
		stop = found(start, end)
		return stop == nil
	})
	if stop != nil {
		return stop
	}
	if err != nil {
		// The library's error quotes the whole text.
		return fmt.Errorf("pre-tokenizing %d bytes with %q: a match takes longer than %v", len(text), r.re, r.re.MatchTimeout)
	}
	return nil
}

// maxPooledRunes bounds the memory that is kept for the next text.
const maxPooledRunes = 1 << 14
