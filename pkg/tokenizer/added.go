package tokenizer

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is cut out of the text before anything else happens to it: an "added_tokens" element.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character touches it
	LeftStrip  bool   `json:"lstrip"`      // white space before it goes with it
	RightStrip bool   `json:"rstrip"`      // white space after it goes with it
	Normalized bool   `json:"normalized"`  // it is looked for, normalized, in the normalized text
	Special    bool   `json:"special"`     // control, not text

	text []byte // the content, normalized if it is looked for so: what is found, and what it decodes to
}

const (
	// maxAddedBytes bounds the search for one; the longest in use have under 100 bytes.
	maxAddedBytes = 1 << 10

	maxAddedTokens = 1 << 20
)

// matcher finds added tokens in text: the leftmost, of these the longest.
type matcher struct {
	tokens []*addedToken // by text
	first  [256]bool     // bytes that start one
}

// newMatcher returns the matcher of tokens, nil if there is none.
func newMatcher(tokens []*addedToken) *matcher {
	tokens = slices.DeleteFunc(tokens, func(t *addedToken) bool { return len(t.text) == 0 })
	if len(tokens) == 0 {
		return nil
	}
	slices.SortStableFunc(tokens, func(a, b *addedToken) int { return bytes.Compare(a.text, b.text) })
	m := &matcher{tokens: tokens}
	for _, t := range tokens {
		m.first[t.text[0]] = true
	}
	return m
}

// longest returns the longest token at the start of text, nil if there is none.
func (m *matcher) longest(text []byte) *addedToken {
	// The sorted texts are a trie: those that share the bytes so far are neighbours, the one that ends here is first.
	low, high := 0, len(m.tokens)
	var best *addedToken
	for depth := 0; ; depth++ {
		if t := m.tokens[low]; len(t.text) == depth {
			best = t
			for low < high && len(m.tokens[low].text) == depth {
				low++
			}
		}
		if low == high || depth == len(text) {
			return best
		}
		next, rest := text[depth], m.tokens[low:high]
		start := sort.Search(len(rest), func(i int) bool { return rest[i].text[depth] >= next })
		end := sort.Search(len(rest), func(i int) bool { return rest[i].text[depth] > next })
		if start == end {
			return best
		}
		low, high = low+start, low+end
	}
}

// split calls gap for the pieces of p between tokens and token for the tokens, in order. Special tokens are text unless
// special is set. A nil matcher finds nothing.
func (m *matcher) split(p piece, special bool, token func(id int32), gap func(piece) error) error {
	if m == nil {
		return gap(p)
	}
	done := 0
	for at := 0; at < len(p.text); {
		if !m.first[p.text[at]] {
			at++
			continue
		}
		t := m.longest(p.text[at:])
		if t == nil {
			at++
			continue
		}
		start, stop := at, at+len(t.text)
		at = stop // a token that does not count still hides others in it, as in the reference
		if t.Special && !special || t.SingleWord && (wordEnds(p.text[:start]) || wordStarts(p.text[stop:])) {
			continue
		}
		if t.LeftStrip {
			start = max(done, len(bytes.TrimRightFunc(p.text[:start], unicode.IsSpace)))
		}
		if t.RightStrip {
			stop = len(p.text) - len(bytes.TrimLeftFunc(p.text[stop:], unicode.IsSpace))
		}
		if done < start {
			if err := gap(p.from(done, start)); err != nil {
				return err
			}
		}
		token(t.ID)
		done = stop
	}
	if done == len(p.text) {
		return nil
	}
	return gap(p.from(done, len(p.text)))
}

func wordEnds(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return isWord(r)
}

func wordStarts(text []byte) bool {
	r, _ := utf8.DecodeRune(text)
	return isWord(r)
}

// isWord is \w of Unicode: UTS #18, annex C.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}

// checkAdded checks the added tokens against each other and the model's vocabulary, and sorts them by id.
func checkAdded(tokens []addedToken, v *vocab) error {
	slices.SortStableFunc(tokens, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	for i, t := range tokens {
		switch {
		case t.Content == "":
			return fmt.Errorf("the added token of id %d is empty", t.ID)
		case len(t.Content) > maxAddedBytes:
			return fmt.Errorf("the added token of id %d has %d bytes, more than %d", t.ID, len(t.Content), maxAddedBytes)
		case t.ID < 0 || t.ID >= maxTokens:
			return fmt.Errorf("id %d of added token %q is not in 0 to %d", t.ID, t.Content, maxTokens-1)
		case i > 0 && tokens[i-1].ID == t.ID:
			return fmt.Errorf("id %d is that of the added tokens %q and %q", t.ID, tokens[i-1].Content, t.Content)
		}
		if id, ok := v.id([]byte(t.Content)); ok && id != t.ID {
			return fmt.Errorf("added token %q has the id %d, in the vocabulary %d", t.Content, t.ID, id)
		} else if text := v.token(t.ID); !ok && text != nil && len(text) > 0 {
			return fmt.Errorf("id %d is that of the added token %q, in the vocabulary of %q", t.ID, t.Content, text)
		}
	}
	return nil
}
