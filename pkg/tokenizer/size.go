package tokenizer

// Memory that a tokenizer takes beside its tables, in bytes: an added token with its texts and places, and the components
// with their compiled patterns.
const (
	addedBytes     = 320
	componentBytes = 48 << 10
)

// Bytes is the memory that the tokenizer takes, for the ledger of a process whose memory is capped: the same for the same
// file, and not less than the heap grows by.
func (t *Tokenizer) Bytes() int64 {
	v := t.model.vocabulary()
	n := cap(v.text) + 4*cap(v.start) + 4*cap(v.index.slots)
	switch m := t.model.(type) {
	case *bpe:
		n += 12*cap(m.merges.list) + 4*cap(m.merges.index.slots) + 4*cap(m.whole)
	case *unigram:
		n += 8*cap(m.scores) + m.trie.bytes()
	}
	n += len(t.source.normalizer) * 2 // a precompiled one as text and as arrays
	return int64(n + addedBytes*len(t.added) + componentBytes)
}
