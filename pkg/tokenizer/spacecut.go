package tokenizer

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// spaceMark stands for a space in vocabularies made by SentencePiece.
const spaceMark = "\u2581"

// spaceCut cuts words before spaceMark where no token reaches across. Tokenizers made by SentencePiece often have no
// pre-tokenizer: a text is one word, long and different from all others. As a merge across the cut would make a token that
// has both characters side by side, the parts encode to the same tokens as the whole.
type spaceCut struct {
	before []rune // sorted: what comes before the mark in some token, where a cut would be wrong
}

// newSpaceCut returns nil if the mark is no token: then it may be part of an unknown run, which a cut would divide.
func newSpaceCut(v *vocab) *spaceCut {
	if _, ok := v.id([]byte(spaceMark)); !ok {
		return nil
	}
	var before []rune
	for id := range int32(v.size()) {
		text := v.token(id)
		for at := 0; ; {
			i := bytes.Index(text[at:], []byte(spaceMark))
			if i < 0 {
				break
			}
			if at += i; at > 0 {
				r, _ := utf8.DecodeLastRune(text[:at])
				before = append(before, r)
			}
			at += len(spaceMark)
		}
	}
	slices.Sort(before)
	return &spaceCut{slices.Clone(slices.Compact(before))}
}

// next returns the length of the first part of word.
func (c *spaceCut) next(word []byte) int {
	for at := 1; at < len(word); {
		i := bytes.Index(word[at:], []byte(spaceMark))
		if i < 0 {
			break
		}
		at += i
		r, _ := utf8.DecodeLastRune(word[:at])
		if _, found := slices.BinarySearch(c.before, r); !found {
			return at
		}
		at += len(spaceMark)
	}
	return len(word)
}
