package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"substrate/internal/jsonio"
)

// normalizer rewrites text before it is cut: "normalizer" of a tokenizer.json.
type normalizer interface {
	// normalize returns the text rewritten; text itself stays as it is, and may be returned.
	normalize(text []byte) ([]byte, error)
}

func newNormalizer(raw jsonio.RawValue, depth int) (normalizer, error) {
	typ, err := componentType(raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "Sequence":
		return newNormalizerSequence(raw, depth)
	case "NFC":
		return unicodeForm(norm.NFC), known(raw)
	case "NFD":
		return unicodeForm(norm.NFD), known(raw)
	case "NFKC":
		return unicodeForm(norm.NFKC), known(raw)
	case "NFKD":
		return unicodeForm(norm.NFKD), known(raw)
	case "Prepend":
		return newPrepend(raw)
	case "Replace":
		return newReplace(raw)
	case "Lowercase":
		return lowercase{}, known(raw)
	case "Strip":
		return newStripSpace(raw)
	case "StripAccents":
		return mapRunes(stripAccent), known(raw)
	case "Nmt":
		return mapRunes(nmt), known(raw)
	case "Precompiled":
		return newPrecompiled(raw)
	case "ByteLevel":
		return byteAlphabet{}, known(raw)
	}
	return nil, unsupported("normalizer", typ)
}

// known checks that a component has no member but its type.
func known(raw jsonio.RawValue) error {
	var c typed
	return jsonio.UnmarshalKnown("", raw, &c)
}

type normalizerSequence []normalizer

func newNormalizerSequence(raw jsonio.RawValue, depth int) (normalizer, error) {
	var c struct {
		typed
		Normalizers []jsonio.RawValue `json:"normalizers"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if depth >= maxNesting {
		return nil, jsonio.Errorf("", "", "more than %d components in each other", maxNesting)
	}
	list, err := makeEach("normalizers", c.Normalizers, func(raw jsonio.RawValue) (normalizer, error) {
		return newNormalizer(raw, depth+1)
	})
	return normalizerSequence(list), err
}

func (s normalizerSequence) normalize(text []byte) ([]byte, error) {
	before := len(text)
	for _, n := range s {
		var err error
		if text, err = n.normalize(text); err != nil {
			return nil, err
		}
		if err = checkGrowth(before, len(text)); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// cutsStart reports whether a normalizer drops the character that a text starts with: then what is left does not start
// where the text does.
func cutsStart(n normalizer, text []byte) bool {
	_, size := utf8.DecodeRune(text)
	rest, err := n.normalize(text[:size])
	return err == nil && size > 0 && len(rest) == 0
}

// canCutStart reports whether cutsStart may be true for some text.
func canCutStart(n normalizer) bool {
	switch n := n.(type) {
	case normalizerSequence:
		return slices.ContainsFunc(n, canCutStart)
	case mapRunes, *stripSpace:
		return true
	}
	return false
}

// checkGrowth stops a hostile normalizer, which could make gigabytes of a line: by a long replacement, or by a short one
// again and again. Honest ones make 18 times the text at most (NFKD).
func checkGrowth(before, after int) error {
	if after > 64*before+4096 {
		return fmt.Errorf("normalizing makes more than %d bytes of %d", 64*before+4096, before)
	}
	return nil
}

// unicodeForm is one of the normalization forms of Unicode, UAX #15.
type unicodeForm norm.Form

func (f unicodeForm) normalize(text []byte) ([]byte, error) {
	if norm.Form(f).IsNormal(text) {
		return text, nil
	}
	return norm.Form(f).Bytes(text), nil
}

// prepend puts a fixed text before every text that is not empty.
type prepend []byte

func newPrepend(raw jsonio.RawValue) (normalizer, error) {
	var c struct {
		typed
		Prepend string `json:"prepend"`
	}
	err := jsonio.UnmarshalKnown("", raw, &c)
	return prepend(c.Prepend), err
}

func (p prepend) normalize(text []byte) ([]byte, error) {
	if len(text) == 0 {
		return text, nil
	}
	return append(bytes.Clone(p), text...), nil
}

// replace puts a fixed text in the place of all matches of a pattern.
type replace struct {
	pattern pattern
	content []byte
}

func newReplace(raw jsonio.RawValue) (*replace, error) {
	var c struct {
		typed
		Pattern patternConfig `json:"pattern"`
		Content string        `json:"content"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	p, err := c.Pattern.compile()
	if err != nil {
		return nil, jsonio.Within("", "/pattern", err)
	}
	return &replace{p, []byte(c.Content)}, nil
}

func (r *replace) normalize(text []byte) ([]byte, error) {
	var out []byte
	done := 0
	err := r.pattern.find(text, func(start, end int) error {
		out = append(append(out, text[done:start]...), r.content...)
		done = end
		return checkGrowth(len(text), len(out))
	})
	if done == 0 && out == nil {
		return text, err
	}
	return append(out, text[done:]...), err
}

// lowercase maps every character by itself: no final sigma.
type lowercase struct{}

func (lowercase) normalize(text []byte) ([]byte, error) {
	// The one character whose lower case is two: I with dot above.
	text = bytes.ReplaceAll(text, []byte("\u0130"), []byte("i\u0307"))
	return bytes.Map(unicode.ToLower, text), nil
}

// stripSpace takes white space off the ends.
type stripSpace struct {
	typed
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func newStripSpace(raw jsonio.RawValue) (normalizer, error) {
	var s stripSpace
	err := jsonio.UnmarshalKnown("", raw, &s)
	return &s, err
}

func (s *stripSpace) normalize(text []byte) ([]byte, error) {
	if s.Left {
		text = bytes.TrimLeftFunc(text, unicode.IsSpace)
	}
	if s.Right {
		text = bytes.TrimRightFunc(text, unicode.IsSpace)
	}
	return text, nil
}

// mapRunes maps every character by itself, to none if it is negative.
type mapRunes func(r rune) rune

func (m mapRunes) normalize(text []byte) ([]byte, error) { return bytes.Map(m, text), nil }

// stripAccent drops marks, which NFD has taken off their letters.
func stripAccent(r rune) rune {
	if unicode.Is(unicode.M, r) {
		return -1
	}
	return r
}

// nmt drops control characters, and takes what else is white space for a space, as SentencePiece's rule of that name.
func nmt(r rune) rune {
	switch {
	case r >= 0x01 && r <= 0x08, r == 0x0b, r >= 0x0e && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
		return -1
	case r == '\t', r == '\n', r == 0x0c, r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028, r == 0x2029, r == 0x2581,
		r == 0xfeff, r == 0xfffd:
		return ' '
	}
	return r
}

// byteAlphabet maps every byte to its character in the byte-level alphabet.
type byteAlphabet struct{}

func (byteAlphabet) normalize(text []byte) ([]byte, error) {
	return appendByteChars(make([]byte, 0, 2*len(text)), text), nil
}
