package tokenizer

import (
	"bytes"
	"fmt"
	"hash/maphash"
)

// maxTokenBytes bounds one token's text; the longest in use are runs of white space of some hundred bytes.
const maxTokenBytes = 1 << 16

// vocab maps the texts of tokens to their ids and back. Texts are as the tokenizer.json has them (of a byte-level one:
// in its alphabet, "Ġthe"). They lie in one arena, by id; for 49,152 tokens of 7 bytes that is 0.3 MiB, and 0.8 MiB with
// offsets and index.
type vocab struct {
	text  []byte
	start []uint32 // text[start[id]:start[id+1]] is the text of id, empty for an id that is not used
	used  int
	index index
	seed  maphash.Seed
}

// size is one more than the highest id.
func (v *vocab) size() int { return len(v.start) - 1 }

// token returns the text of an id, nil if there is none.
func (v *vocab) token(id int32) []byte {
	if id < 0 || int(id) >= v.size() {
		return nil
	}
	return v.text[v.start[id]:v.start[id+1]]
}

// id returns the id of a text.
func (v *vocab) id(text []byte) (int32, bool) {
	hash := maphash.Bytes(v.seed, text)
	for slot := v.index.first(hash); ; {
		ref, next, ok := v.index.probe(hash, slot)
		if !ok {
			return -1, false
		}
		if bytes.Equal(v.token(int32(ref)), text) {
			return int32(ref), true
		}
		slot = next
	}
}

// vocabBuilder gathers tokens in the order of a file.
type vocabBuilder struct {
	text []byte
	end  []uint32 // of the i-th token in text
	ids  []int32
	high int32
}

// add appends a token whose text the caller has just appended to b.text.
func (b *vocabBuilder) add(id int64) error {
	start := 0
	if n := len(b.end); n > 0 {
		start = int(b.end[n-1])
	}
	switch size := len(b.text) - start; {
	case size == 0:
		return fmt.Errorf("the token of id %d is empty", id)
	case size > maxTokenBytes:
		return fmt.Errorf("the token of id %d has %d bytes, more than %d", id, size, maxTokenBytes)
	case len(b.text) > 1<<31-1:
		return fmt.Errorf("the vocabulary has more than 2 GiB of text")
	case id < 0 || id >= maxTokens:
		return fmt.Errorf("id %d of token %q is not in 0 to %d", id, b.text[start:], maxTokens-1)
	}
	b.end = append(b.end, uint32(len(b.text)))
	b.ids = append(b.ids, int32(id))
	b.high = max(b.high, int32(id))
	return nil
}

// maxTokens bounds a vocabulary, and with it what a short file that names a high id can make us allocate; the largest in
// use have 262,144.
const maxTokens = 1 << 24

// build orders the tokens by id and makes the index.
func (b *vocabBuilder) build() (*vocab, error) {
	n := 0
	if len(b.ids) > 0 {
		n = int(b.high) + 1
	}
	if n > 2*len(b.ids)+1<<16 {
		return nil, fmt.Errorf("highest id %d is too far above the number of tokens, %d", b.high, len(b.ids))
	}
	v := &vocab{
		text:  make([]byte, 0, len(b.text)),
		start: make([]uint32, n+1),
		used:  len(b.ids),
		index: newIndex(n),
		seed:  maphash.MakeSeed(),
	}
	// entry[id] is the place of the id in file order, plus one.
	entry := make([]uint32, n)
	for i, id := range b.ids {
		if other := entry[id]; other != 0 {
			return nil, fmt.Errorf("id %d is that of token %q and of token %q", id, b.entry(int(other)-1), b.entry(i))
		}
		entry[id] = uint32(i) + 1
	}
	for id, e := range entry {
		if e != 0 {
			text := b.entry(int(e) - 1)
			if other, ok := v.id(text); ok {
				return nil, fmt.Errorf("token %q has the ids %d and %d", text, other, id)
			}
			v.text = append(v.text, text...)
			v.start[id+1] = uint32(len(v.text))
			v.index.insert(maphash.Bytes(v.seed, text), uint32(id))
		}
		v.start[id+1] = uint32(len(v.text))
	}
	return v, nil
}

func (b *vocabBuilder) entry(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = b.end[i-1]
	}
	return b.text[start:b.end[i]]
}
