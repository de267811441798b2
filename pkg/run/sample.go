package run

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Sampling is how tokens are picked from logits. The zero value takes the
// likeliest. The steps come in the order of the fields, which is that of
// transformers; each works on what the one before left.
type Sampling struct {
	// RepetitionPenalty divides a positive logit, and multiplies another, of
	// every token that the prompt or the answer has; above 1 against
	// repetition; 0 and 1 do nothing. (Keskar et al. 2019, arXiv:1909.05858)
	RepetitionPenalty float64
	// Temperature divides all logits; 0 takes the likeliest token.
	Temperature float64
	// TopK keeps the K likeliest tokens; 0 keeps all.
	TopK int
	// TopP keeps the likeliest tokens whose probabilities add up to P; 0 and 1
	// keep all. (Holtzman et al. 2019, arXiv:1904.09751)
	TopP float64
	// MinP keeps tokens of at least P times the likeliest one's probability;
	// 0 keeps all. (Nguyen et al. 2024, arXiv:2407.01082)
	MinP float64
}

// Check finds values out of range.
func (s *Sampling) Check() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1):
		return fmt.Errorf("temperature %v: want a finite number, 0 or more", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d: want 0 (all) or more", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v: want a number from 0 to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %v: want a number from 0 to 1", s.MinP)
	case !(s.RepetitionPenalty >= 0) || math.IsInf(s.RepetitionPenalty, 1):
		return fmt.Errorf("repetition-penalty %v: want a finite number, 0 or more", s.RepetitionPenalty)
	}
	return nil
}

// penalizes reports whether what came before matters.
func (s *Sampling) penalizes() bool { return s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 }

// orders reports whether the likeliest tokens must be found.
func (s *Sampling) orders() bool {
	return s.Temperature > 0 && (s.TopK > 0 || s.TopP > 0 && s.TopP < 1)
}

// SamplerBytes is the memory of a sampler's buffers.
func (s *Sampling) SamplerBytes(vocab int) int64 {
	var bytes int64
	if s.penalizes() {
		bytes += int64(vocab)/8 + 8 + 4*int64(vocab)
	}
	if s.orders() {
		bytes += 4 * int64(vocab)
	}
	return bytes
}

// sampler picks tokens. pick allocates nothing.
type sampler struct {
	Sampling
	rng    *rand.Rand
	seen   []uint64  // bit set of the tokens that count as repeated
	scores []float32 // with penalties
	heap   []int32
}

func newSampler(s Sampling, vocab int, seed uint64) *sampler {
	p := &sampler{Sampling: s, rng: rand.New(rand.NewPCG(seed, 0))}
	if s.penalizes() {
		p.seen, p.scores = make([]uint64, (vocab+63)/64), make([]float32, vocab)
	}
	if s.orders() {
		p.heap = make([]int32, vocab)
	}
	return p
}

// see notes tokens of the prompt.
func (s *sampler) see(ids []int32) {
	if s.seen == nil {
		return
	}
	for _, id := range ids {
		s.seen[id/64] |= 1 << (id % 64)
	}
}

// pick returns the index of a token and notes it. One number is drawn per
// token whatever the logits are. Of equal logits the first counts as the
// largest.
func (s *sampler) pick(logits []float32) int32 {
	var id int32
	scores := s.penalized(logits)
	best := likeliest(scores)
	switch draw := s.rng.Float64(); {
	case s.Temperature == 0:
		id = best
	case s.heap != nil:
		id = s.pickOrdered(scores, best, draw)
	default:
		id = s.pickAny(scores, best, draw)
	}
	if s.seen != nil {
		s.seen[id/64] |= 1 << (id % 64)
	}
	return id
}

func likeliest(scores []float32) int32 {
	best := 0
	for i, x := range scores {
		if x > scores[best] {
			best = i
		}
	}
	return int32(best)
}

// penalized is the logits after the repetition penalty, the logits themselves
// where there is none.
func (s *sampler) penalized(logits []float32) []float32 {
	if s.seen == nil {
		return logits
	}
	copy(s.scores, logits)
	for i, x := range s.scores {
		switch {
		case s.seen[i/64]>>(i%64)&1 == 0:
		case x > 0:
			s.scores[i] = float32(float64(x) / s.RepetitionPenalty)
		default:
			s.scores[i] = float32(float64(x) * s.RepetitionPenalty)
		}
	}
	return s.scores
}

// weight is a token's probability as a part of the likeliest one's.
func (s *sampler) weight(x, peak float32) float64 {
	return math.Exp((float64(x) - float64(peak)) / s.Temperature)
}

// pickAny picks among all tokens that MinP leaves.
func (s *sampler) pickAny(scores []float32, best int32, draw float64) int32 {
	peak := scores[best]
	var sum float64
	for _, x := range scores {
		if w := s.weight(x, peak); w >= s.MinP {
			sum += w
		}
	}
	left := draw * sum
	for i, x := range scores {
		if w := s.weight(x, peak); w >= s.MinP {
			if left -= w; left < 0 {
				return int32(i)
			}
		}
	}
	return best // the sum was rounded
}

// pickOrdered takes tokens from the likeliest down, as many as are kept, and
// picks among them.
func (s *sampler) pickOrdered(scores []float32, best int32, draw float64) int32 {
	peak := scores[best]
	order := s.order(scores)
	n := len(scores)
	if s.TopK > 0 {
		n = min(n, s.TopK)
	}
	var sum float64 // of what TopP counts in
	if s.TopK > 0 {
		for i := range n {
			sum += s.weight(scores[order.take(i)], peak)
		}
	} else {
		for _, x := range scores {
			sum += s.weight(x, peak)
		}
	}
	kept, mass := 0, 0.0
	for kept < n {
		w := s.weight(scores[order.take(kept)], peak)
		if kept > 0 && (w < s.MinP || s.TopP > 0 && mass >= s.TopP*sum) {
			break
		}
		mass += w
		kept++
	}
	left := draw * mass
	for i := range kept {
		id := order.take(i)
		if left -= s.weight(scores[id], peak); left < 0 {
			return id
		}
	}
	return best
}

// order is the tokens from the likeliest down, sorted as far as somebody
// asked.
type order struct {
	ids    []int32 // a heap in ids[:left], then what was taken, the first at the end
	scores []float32
	left   int
}

func (s *sampler) order(scores []float32) order {
	o := order{ids: s.heap, scores: scores, left: len(s.heap)}
	for i := range o.ids {
		o.ids[i] = int32(i)
	}
	for i := o.left/2 - 1; i >= 0; i-- {
		o.down(i)
	}
	return o
}

// take returns the i-th likeliest token.
func (o *order) take(i int) int32 {
	n := len(o.ids)
	for n-o.left <= i {
		o.left--
		o.ids[0], o.ids[o.left] = o.ids[o.left], o.ids[0]
		o.down(0)
	}
	return o.ids[n-1-i]
}

// before reports whether token a comes before b.
func (o *order) before(a, b int32) bool {
	x, y := o.scores[a], o.scores[b]
	return x > y || x == y && a < b
}

// down restores the heap below i.
func (o *order) down(i int) {
	for {
		child := 2*i + 1
		if child >= o.left {
			return
		}
		if child+1 < o.left && o.before(o.ids[child+1], o.ids[child]) {
			child++
		}
		if !o.before(o.ids[child], o.ids[i]) {
			return
		}
		o.ids[i], o.ids[child] = o.ids[child], o.ids[i]
		i = child
	}
}
