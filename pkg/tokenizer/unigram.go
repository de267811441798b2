package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// unigram cuts a word into the tokens whose scores, logarithms of their probabilities, have the largest sum. Kudo: Subword
// Regularization, 2018. The search is that of SentencePiece (unigram_model.cc), and what becomes of characters without a
// token that of Hugging Face's tokenizers (models/unigram/model.rs), whose files these are.
type unigram struct {
	vocab    *vocab
	scores   []float64 // by id
	unk      int32
	unkScore float64
	fallback *[256]int32 // ids of "<0x00>" to "<0xFF>", -1 for none; nil without byte fallback
	trie     trie
}

// unkPenalty is how much less than the lowest score an unknown character has.
const unkPenalty = 10

func newUnigram(v *vocab, scores []float64, unk int64, byteFallback bool) (*unigram, error) {
	if unk < 0 || unk >= int64(v.size()) {
		return nil, fmt.Errorf("unk_id %d is not the place of a token", unk)
	}
	u := &unigram{vocab: v, scores: scores, unk: int32(unk), unkScore: slices.Min(scores) - unkPenalty}
	if byteFallback {
		u.fallback = byteTokens(v)
	}
	var err error
	u.trie, err = newTrie(v)
	return u, err
}

// byteTokens returns the ids of "<0x00>" to "<0xFF>".
func byteTokens(v *vocab) *[256]int32 {
	ids := new([256]int32)
	for i := range ids {
		ids[i] = -1
		if id, ok := v.id(fmt.Appendf(nil, "<0x%02X>", i)); ok {
			ids[i] = id
		}
	}
	return ids
}

func (u *unigram) vocabulary() *vocab { return u.vocab }

// lattice is the best way to a place in a word.
type lattice struct {
	score float64
	start int32 // of its last token, -1: no way leads here
	id    int32
}

func (u *unigram) encode(dst []int32, word []byte, w *work) []int32 {
	nodes := slices.Grow(w.nodes[:0], len(word)+1)[:len(word)+1]
	w.nodes = nodes
	nodes[0] = lattice{}
	for i := range nodes[1:] {
		nodes[1+i].start = -1
	}
	for at := 0; at < len(word); {
		size := 1
		if word[at] >= utf8.RuneSelf {
			_, size = utf8.DecodeRune(word[at:])
		}
		u.step(nodes, word, at, size)
		at += size
	}
	return u.collect(dst, word, w)
}

// step goes on from a place by every token that begins there, and where none is just the character, of size bytes, by the
// unknown one.
func (u *unigram) step(nodes []lattice, word []byte, at, size int) {
	here := nodes[at].score
	single := false
	node := int32(0)
	for end := at; end < len(word); {
		if node = u.trie.next(node, word[end]); node < 0 {
			break
		}
		end++
		id := u.trie.ids[node]
		if id < 0 {
			continue
		}
		nodes[end].meet(here+u.scores[id], at, id)
		single = single || end-at == size
	}
	if !single {
		nodes[at+size].meet(here+u.unkScore, at, u.unk)
	}
}

func (n *lattice) meet(score float64, start int, id int32) {
	if n.start < 0 || score > n.score {
		*n = lattice{score, int32(start), id}
	}
}

// collect goes back from the end. Unknown characters side by side are one unknown text.
func (u *unigram) collect(dst []int32, word []byte, w *work) []int32 {
	before := len(dst)
	for end := len(word); end > 0; {
		n := w.nodes[end]
		start := int(n.start)
		if n.id != u.unk {
			dst = append(dst, n.id)
			end = start
			continue
		}
		for start > 0 && w.nodes[start].id == u.unk {
			start = int(w.nodes[start].start)
		}
		dst = u.unknown(dst, word[start:end])
		end = start
	}
	slices.Reverse(dst[before:])
	return dst
}

// unknown appends what stands for a text without a token, back to front.
func (u *unigram) unknown(dst []int32, text []byte) []int32 {
	if id, ok := u.vocab.id(text); ok {
		return append(dst, id)
	}
	if u.fallback != nil && !slices.ContainsFunc(text, func(c byte) bool { return u.fallback[c] < 0 }) {
		for i := range text {
			dst = append(dst, u.fallback[text[len(text)-1-i]])
		}
		return dst
	}
	return append(dst, u.unk)
}

func (u *unigram) writeJSON(w *writer) {
	w.raw(`{"type": "Unigram", "unk_id": ` + strconv.Itoa(int(u.unk)))
	w.flag("byte_fallback", u.fallback != nil)
	w.raw(",\n    \"vocab\": [")
	for id := range int32(u.vocab.size()) {
		w.separate(int(id), "\n      [")
		w.text(u.vocab.token(id))
		w.raw(", " + formatScore(u.scores[id]) + "]")
	}
	w.raw("\n    ]}")
}

// formatScore writes a score as it will be read.
func formatScore(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// readPieces reads a vocabulary with scores: a list of pairs, whose places are the ids.
func (l *loader) readPieces(r *jsonio.Reader) error {
	if l.vocab != nil {
		return r.Errorf("a second vocabulary")
	}
	var b vocabBuilder
	l.scores = []float64{}
	err := r.Array(func() error {
		n := 0
		err := r.Array(func() (err error) {
			switch n++; n {
			case 1:
				b.text, err = r.AppendString(b.text)
			case 2:
				var score float64
				if err = r.Unmarshal(&score); err == nil && (math.IsInf(score, 0) || math.IsNaN(score)) {
					err = r.Errorf("score %v", score)
				}
				l.scores = append(l.scores, score)
			default:
				err = r.Skip()
			}
			return err
		})
		if err != nil {
			return err
		}
		if n != 2 {
			return r.Errorf("a token of %d parts; there should be its text and its score", n)
		}
		if err := b.add(int64(len(l.scores) - 1)); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(l.scores) == 0 {
		return r.Errorf("the vocabulary is empty")
	}
	if l.vocab, err = b.build(); err != nil {
		return r.Errorf("%w", err)
	}
	return nil
}
