package tokenizer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"
)

// bpe is byte-pair encoding: a word is cut into characters, then the pair of neighbours that was learned first is joined,
// again and again. Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, 2016. What
// happens to characters without a token follows Hugging Face's tokenizers (models/bpe/model.rs), whose files these are.
type bpe struct {
	vocab  *vocab
	merges *merges
	config bpeConfig

	unk       int32       // -1: characters without a token are dropped
	fallback  *[256]int32 // ids of "<0x00>" to "<0xFF>", nil without byte fallback
	cut       *spaceCut   // nil: words stay whole
	byteLevel *[256]int32 // ids of the 256 single bytes in the byte-level alphabet, -1 for none; nil if words are plain text

	// whole remembers, by id, of which tokens the text encodes to that token alone: two bits, known and so. Most words
	// of a text are such tokens, so one look-up replaces their merges.
	whole []atomic.Uint32
}

// bpeConfig are the members of a BPE model apart from vocabulary and merges.
type bpeConfig struct {
	unkToken     string // "" is none
	prefix       string // continuing_subword_prefix
	suffix       string // end_of_word_suffix
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool // a word that is a token is that token
}

func newBPE(v *vocab, m *merges, c bpeConfig) (*bpe, error) {
	b := &bpe{vocab: v, merges: m, config: c, unk: -1, whole: make([]atomic.Uint32, (v.size()+15)/16)}
	if c.unkToken != "" {
		id, ok := v.id([]byte(c.unkToken))
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", c.unkToken)
		}
		b.unk = id
	}
	if c.byteFallback {
		b.fallback = byteTokens(v)
	}
	if c.prefix == "" && c.suffix == "" && !c.ignoreMerges {
		b.cut = newSpaceCut(v)
	}
	return b, nil
}

// takeBytes makes the model take words as raw bytes, which it maps to the byte-level alphabet itself. The result is that
// of encoding the mapped word; only the detour is spared. It declines, false, if affixes or byte fallback need the text.
func (b *bpe) takeBytes() bool {
	if b.config.prefix != "" || b.config.suffix != "" || b.config.byteFallback {
		return false
	}
	b.cut = nil
	b.byteLevel = new([256]int32)
	for i := range b.byteLevel {
		b.byteLevel[i] = -1
		if id, ok := b.vocab.id(appendByteChar(nil, byte(i))); ok {
			b.byteLevel[i] = id
		}
	}
	return true
}

func (b *bpe) vocabulary() *vocab { return b.vocab }

func (b *bpe) encode(dst []int32, word []byte, w *work) []int32 {
	if b.cut == nil {
		return b.encodeWord(dst, word, w)
	}
	for len(word) > 0 {
		n := b.cut.next(word)
		dst = b.encodeWord(dst, word[:n], w)
		word = word[n:]
	}
	return dst
}

func (b *bpe) encodeWord(dst []int32, word []byte, w *work) []int32 {
	text := word
	if b.byteLevel != nil {
		w.mapped = appendByteChars(w.mapped[:0], word)
		text = w.mapped
	}
	id, ok := b.vocab.id(text)
	if !ok {
		return b.encodeMerges(dst, word, w)
	}
	if b.config.ignoreMerges {
		return append(dst, id)
	}
	slot, shift := &b.whole[id/16], uint(id%16)*2
	switch slot.Load() >> shift & 3 {
	case 3:
		return append(dst, id)
	case 1:
		return b.encodeMerges(dst, word, w)
	}
	before := len(dst)
	dst = b.encodeMerges(dst, word, w)
	known := uint32(1)
	if len(dst) == before+1 && dst[before] == id {
		known = 3
	}
	slot.Or(known << shift)
	return dst
}

// encodeMerges encodes a word without a look at the word as a whole.
func (b *bpe) encodeMerges(dst []int32, word []byte, w *work) []int32 {
	w.symbols = slices.Grow(w.symbols[:0], len(word))
	if b.byteLevel != nil {
		b.splitBytes(word, w)
	} else {
		b.splitChars(word, w)
	}
	if len(w.symbols) <= shortWord {
		w.symbols = b.merges.applyShort(w.symbols)
	} else {
		b.merges.applyLong(w)
	}
	for _, s := range w.symbols {
		if s.id >= 0 {
			dst = append(dst, s.id)
		}
	}
	return dst
}

// splitBytes makes a symbol of every byte.
func (b *bpe) splitBytes(word []byte, w *work) {
	var unk unknown
	for _, c := range word {
		if id := b.byteLevel[c]; id >= 0 {
			unk.flush(w)
			w.add(id)
		} else {
			unk.meet(b, w)
		}
	}
	unk.flush(w)
}

// splitChars makes a symbol of every character, or one of each of its bytes.
func (b *bpe) splitChars(word []byte, w *work) {
	var unk unknown
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRune(word[at:])
		text := word[at : at+size]
		if b.config.prefix != "" || b.config.suffix != "" {
			text = b.affix(text, at == 0, at+size == len(word), w)
		}
		at += size
		if id, ok := b.vocab.id(text); ok {
			unk.flush(w)
			w.add(id)
		} else if !b.addFallback(text, w) {
			unk.meet(b, w)
		}
	}
	unk.flush(w)
}

// affix marks a character that does not start its word by the prefix, and the one that ends it by the suffix.
func (b *bpe) affix(char []byte, first, last bool, w *work) []byte {
	w.mapped = w.mapped[:0]
	if !first {
		w.mapped = append(w.mapped, b.config.prefix...)
	}
	w.mapped = append(w.mapped, char...)
	if last {
		w.mapped = append(w.mapped, b.config.suffix...)
	}
	return w.mapped
}

// addFallback adds the byte tokens of text, if all of them exist.
func (b *bpe) addFallback(text []byte, w *work) bool {
	if b.fallback == nil {
		return false
	}
	for _, c := range text {
		if b.fallback[c] < 0 {
			return false
		}
	}
	for _, c := range text {
		w.add(b.fallback[c])
	}
	return true
}

// unknown is the unk token that stands for the characters without a token met last. As in the reference it waits for the
// next character with a token, so that byte tokens in between come before it.
type unknown struct {
	id      int32
	waiting bool
}

func (u *unknown) meet(b *bpe, w *work) {
	if b.unk < 0 {
		return
	}
	if u.waiting && !b.config.fuseUnk {
		w.add(u.id)
	}
	u.id, u.waiting = b.unk, true
}

func (u *unknown) flush(w *work) {
	if u.waiting {
		w.add(u.id)
		u.waiting = false
	}
}
