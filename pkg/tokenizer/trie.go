package tokenizer

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// trie finds the tokens that a text begins with. Nodes lie level by level, the children of one side by side and in the
// order of their bytes, so that 9 bytes a node and one search for a byte among a few are enough.
type trie struct {
	labels []byte   // of the edge into a node
	first  []uint32 // a node's children are first[node] to first[node+1]-1
	ids    []int32  // of the token that ends in a node, -1 for none
}

// maxTrieNodes bounds the memory of a trie to 150 MB; the largest in use have a million nodes.
const maxTrieNodes = 1 << 24

// newTrie makes the trie of all tokens.
func newTrie(v *vocab) (trie, error) {
	order := make([]int32, 0, v.used)
	for id := range int32(v.size()) {
		if len(v.token(id)) > 0 {
			order = append(order, id)
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(bytes.Compare(v.token(a), v.token(b)), cmp.Compare(a, b)) })
	t := trie{labels: []byte{0}, ids: []int32{-1}}
	// The tokens below each node of a level, as ranges of order.
	type span struct{ lo, hi int }
	level := []span{{0, len(order)}}
	for depth := 0; len(level) > 0; depth++ {
		var below []span
		for _, s := range level {
			t.first = append(t.first, uint32(len(t.labels)))
			lo := s.lo
			if lo < s.hi && len(v.token(order[lo])) == depth {
				lo++ // the token that ends in this node
			}
			for lo < s.hi {
				c := v.token(order[lo])[depth]
				hi := lo + 1
				for hi < s.hi && v.token(order[hi])[depth] == c {
					hi++
				}
				id := int32(-1)
				if len(v.token(order[lo])) == depth+1 {
					id = order[lo]
				}
				t.labels, t.ids = append(t.labels, c), append(t.ids, id)
				below = append(below, span{lo, hi})
				lo = hi
			}
			if len(t.labels) > maxTrieNodes {
				return t, fmt.Errorf("the vocabulary has more than %d different beginnings of tokens", maxTrieNodes)
			}
		}
		level = below
	}
	t.first = append(t.first, uint32(len(t.labels)))
	t.labels, t.ids, t.first = slices.Clip(t.labels), slices.Clip(t.ids), slices.Clip(t.first)
	return t, nil
}

// next is the child of a node by a byte, -1 if there is none. The root is node 0.
func (t *trie) next(node int32, c byte) int32 {
	first := t.first[node]
	i := bytes.IndexByte(t.labels[first:t.first[node+1]], c)
	if i < 0 {
		return -1
	}
	return int32(first) + int32(i)
}

// bytes is the memory of a trie.
func (t *trie) bytes() int { return cap(t.labels) + 4*cap(t.first) + 4*cap(t.ids) }
