package run

// An ExpertHistory remembers when each expert last served a token of the
// answer. Recency is what it ranks by: it beats frequency on real routing, and
// statistics over longer stretches lose on text that they were not made from.
type ExpertHistory struct {
	last  [][]int64 // by layer and expert: token, from 1 on; 0: never
	taken []bool    // while Recent ranks
}

// NewExpertHistory makes an empty history for layers of so many experts; 0 is
// a layer without.
func NewExpertHistory(experts []int) *ExpertHistory {
	h := &ExpertHistory{last: make([][]int64, len(experts))}
	most := 0
	for l, n := range experts {
		h.last[l] = make([]int64, n)
		most = max(most, n)
	}
	h.taken = make([]bool, most)
	return h
}

// Note says that an expert serves a token, whose number is at least 1.
func (h *ExpertHistory) Note(layer int, expert int32, token int64) { h.last[layer][expert] = token }

// Recent appends to dst the n experts of a layer that served last, the latest
// first and those of one token in their order, of the ones that may be chosen.
// It appends fewer where not as many ever served.
func (h *ExpertHistory) Recent(dst []int32, layer, n int, may []bool) []int32 {
	last := h.last[layer]
	from := len(dst)
	for range n {
		best := int32(-1)
		for e, token := range last {
			if token > 0 && may[e] && !h.taken[e] && (best < 0 || token > last[best]) {
				best = int32(e)
			}
		}
		if best < 0 {
			break
		}
		h.taken[best] = true
		dst = append(dst, best)
	}
	for _, e := range dst[from:] {
		h.taken[e] = false
	}
	return dst
}

// Reset forgets everything.
func (h *ExpertHistory) Reset() {
	for _, last := range h.last {
		clear(last)
	}
}
