package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// preTokenizer cuts text into the words that the model then encodes one by one: "pre_tokenizer" of a tokenizer.json.
type preTokenizer interface {
	// split calls emit for the pieces of p that are not empty, in order. It fails only where a pattern takes too long.
	split(p piece, emit func(piece) error) error
}

// piece is a part of the text.
type piece struct {
	text  []byte
	first bool // starts where the whole text starts
}

// from is the piece of p between two offsets.
func (p piece) from(start, end int) piece {
	return piece{p.text[start:end], p.first && start == 0}
}

func newPreTokenizer(raw jsonio.RawValue, depth int) (preTokenizer, error) {
	typ, err := componentType(raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "Sequence":
		return newPreTokenizerSequence(raw, depth)
	case "ByteLevel":
		return newByteLevelSplit(raw)
	case "Split":
		return newSplit(raw)
	case "Digits":
		return newDigits(raw)
	case "Metaspace":
		return newMetaspace(raw)
	case "Whitespace":
		return newWords(raw)
	case "WhitespaceSplit":
		return newWhitespaceSplit(raw)
	case "Punctuation":
		return newPunctuation(raw)
	case "CharDelimiterSplit":
		return newDelimiterSplit(raw)
	}
	return nil, unsupported("pre-tokenizer", typ)
}

type preTokenizerSequence []preTokenizer

func newPreTokenizerSequence(raw jsonio.RawValue, depth int) (preTokenizer, error) {
	var c struct {
		typed
		PreTokenizers []jsonio.RawValue `json:"pretokenizers"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if depth >= maxNesting {
		return nil, jsonio.Errorf("", "", "more than %d components in each other", maxNesting)
	}
	list, err := makeEach("pretokenizers", c.PreTokenizers, func(raw jsonio.RawValue) (preTokenizer, error) {
		return newPreTokenizer(raw, depth+1)
	})
	return preTokenizerSequence(list), err
}

func (s preTokenizerSequence) split(p piece, emit func(piece) error) error {
	if len(s) == 0 {
		return emit(p)
	}
	if len(s) == 1 {
		return s[0].split(p, emit)
	}
	return s[0].split(p, func(p piece) error { return s[1:].split(p, emit) })
}

// digits cuts out numeric characters (N of Unicode), one by one or in runs.
type digits struct {
	typed
	Individual bool `json:"individual_digits"`
}

func newDigits(raw jsonio.RawValue) (preTokenizer, error) {
	var d digits
	err := jsonio.UnmarshalKnown("", raw, &d)
	return &d, err
}

func (d *digits) split(p piece, emit func(piece) error) error {
	start, inDigits := 0, false // of the piece that is not yet out
	for at := 0; at < len(p.text); {
		r, size := rune(p.text[at]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(p.text[at:])
		}
		digit := unicode.IsNumber(r)
		if at > start && (digit != inDigits || digit && d.Individual) {
			if err := emit(p.from(start, at)); err != nil {
				return err
			}
			start = at
		}
		inDigits = digit
		at += size
	}
	if start == len(p.text) {
		return nil
	}
	return emit(p.from(start, len(p.text)))
}
