package tokenizer

import (
	"fmt"
	"math"
	"slices"
)

// merges are the learned pairs of a BPE model; their rank is their place in the list.
type merges struct {
	list  []merge
	index index
	hash  pairHash
}

// merge joins two neighbours into the token result.
type merge struct{ left, right, result int32 }

// noRank is the rank of pairs that do not merge.
const noRank = math.MaxUint32

// rank returns the place of the pair in the list.
func (m *merges) rank(left, right int32) uint32 {
	hash := m.hash.sum(left, right)
	for slot := m.index.first(hash); ; {
		ref, next, ok := m.index.probe(hash, slot)
		if !ok {
			return noRank
		}
		if e := &m.list[ref]; e.left == left && e.right == right {
			return ref
		}
		slot = next
	}
}

// newMerges indexes the list. Of a pair that occurs twice the later place counts, as in the reference.
func newMerges(list []merge) *merges {
	list = slices.Clone(list) // without the room that it grew into
	m := &merges{list: list, index: newIndex(len(list)), hash: newPairHash()}
	for i := len(list) - 1; i >= 0; i-- {
		if m.rank(list[i].left, list[i].right) == noRank {
			m.index.insert(m.hash.sum(list[i].left, list[i].right), uint32(i))
		}
	}
	return m
}

// mergeBuilder resolves the texts of merges to ids.
type mergeBuilder struct {
	vocab   *vocab
	prefix  string // continuing_subword_prefix, which a joined right part loses
	list    []merge
	scratch []byte
}

// add appends the merge of two texts.
func (b *mergeBuilder) add(left, right []byte) error {
	l, ok := b.vocab.id(left)
	if !ok {
		return fmt.Errorf("merge %d, %q with %q: %q is not in the vocabulary", len(b.list), left, right, left)
	}
	r, ok := b.vocab.id(right)
	if !ok {
		return fmt.Errorf("merge %d, %q with %q: %q is not in the vocabulary", len(b.list), left, right, right)
	}
	if len(right) < len(b.prefix) {
		return fmt.Errorf("merge %d, %q with %q: the right part is shorter than the prefix %q", len(b.list), left, right, b.prefix)
	}
	b.scratch = append(append(b.scratch[:0], left...), right[len(b.prefix):]...)
	result, ok := b.vocab.id(b.scratch)
	if !ok {
		return fmt.Errorf("merge %d, %q with %q: %q is not in the vocabulary", len(b.list), left, right, b.scratch)
	}
	if len(b.list) >= maxMerges {
		return fmt.Errorf("more than %d merges", maxMerges)
	}
	b.list = append(b.list, merge{l, r, result})
	return nil
}

// maxMerges bounds a model; the largest in use have some 600,000.
const maxMerges = 1 << 26

// symbol is a part of a word: a token, and its living neighbours.
type symbol struct {
	id         int32 // -1: joined to the symbol before
	prev, next int32 // places, -1 at the ends
}

func (w *work) add(id int32) { w.symbols = append(w.symbols, symbol{id: id}) }

// shortWord is the number of symbols up to which a scan for the best pair beats the queue.
const shortWord = 32

// applyShort joins pairs by looking through all of them for each join: quadratic, but without any bookkeeping. It returns
// what is left of the symbols.
func (m *merges) applyShort(symbols []symbol) []symbol {
	var ranks [shortWord]uint32 // of the pair that starts at the symbol
	for i := 0; i+1 < len(symbols); i++ {
		ranks[i] = m.rank(symbols[i].id, symbols[i+1].id)
	}
	for len(symbols) > 1 {
		best, at := uint32(noRank), 0
		for i, r := range ranks[:len(symbols)-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		symbols[at].id = m.list[best].result
		last := len(symbols) - 1
		copy(symbols[at+1:], symbols[at+2:])
		copy(ranks[at+1:last], ranks[at+2:last+1])
		symbols = symbols[:last]
		if at > 0 {
			ranks[at-1] = m.rank(symbols[at-1].id, symbols[at].id)
		}
		if at+1 < len(symbols) {
			ranks[at] = m.rank(symbols[at].id, symbols[at+1].id)
		}
	}
	return symbols
}

// applyLong joins pairs in order of a queue: n log n. It leaves joined symbols in their places, with id -1.
func (m *merges) applyLong(w *work) {
	symbols := w.symbols
	// An entry of the queue is rank and place of a pair, rank above: least rank first, then leftmost. It is stale if the
	// pair at the place has become another.
	queue := minHeap(slices.Grow(w.queue[:0], len(symbols)))
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
		if i+1 == len(symbols) {
			symbols[i].next = -1
		} else if r := m.rank(symbols[i].id, symbols[i+1].id); r != noRank {
			queue = append(queue, uint64(r)<<32|uint64(i))
		}
	}
	queue.order()
	push := func(left, right int32) {
		if left < 0 || right < 0 {
			return
		}
		if r := m.rank(symbols[left].id, symbols[right].id); r != noRank {
			queue.push(uint64(r)<<32 | uint64(uint32(left)))
		}
	}
	for len(queue) > 0 {
		top := queue.pop()
		join, at := m.list[top>>32], int32(uint32(top))
		left := &symbols[at]
		if left.id != join.left || left.next < 0 || symbols[left.next].id != join.right {
			continue
		}
		right := &symbols[left.next]
		left.id, right.id = join.result, -1
		left.next = right.next
		if left.next >= 0 {
			symbols[left.next].prev = at
		}
		push(left.prev, at)
		push(at, left.next)
	}
	w.queue = queue
}

// minHeap is a binary heap of numbers, the least first.
type minHeap []uint64

// order makes a heap of numbers in any order.
func (h minHeap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *minHeap) push(x uint64) {
	*h = append(*h, x)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if s[parent] <= s[i] {
			break
		}
		s[parent], s[i] = s[i], s[parent]
		i = parent
	}
}

func (h *minHeap) pop() uint64 {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
	return top
}

func (h minHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
