package plan

import (
	"cmp"
	"container/heap"
	"slices"
)

// exactResidency decides where records live in the mode "exact", in which
// every op runs at its top level and there are no escalations: as many bytes
// of a token as fit are resident, the rest streams. ok is false if not even
// streaming everything fits.
//
// A resident dense byte saves one byte of reads per token, a slot of an
// expert saves less, so that dense ops come first.
func (p *problem) exactResidency(ladders []ladder) (best *solution, ok bool) {
	e := exact{p: p, tops: make([]int, len(ladders))}
	for i, l := range ladders {
		e.tops[i] = l[len(l)-1]
	}
	if s := e.resident(); e.ram(s) <= p.free {
		return s, true
	}
	var least float64
	for _, ringMax := range e.thresholds() {
		s := e.streamed(ringMax)
		if s == nil {
			continue
		}
		u := p.use(s)
		if best == nil || u.readBytes < least {
			best, least = s, u.readBytes
		}
	}
	return best, best != nil
}

type exact struct {
	p    *problem
	tops []int // level of each item
}

func (e *exact) bytes(i int) int64 { return e.p.items[i].levels[e.tops[i]].bytes }

func (e *exact) resident() *solution {
	s := e.p.newSolution()
	for i := range s.picks {
		s.picks[i] = e.p.items[i].whole(e.tops[i])
	}
	return s
}

func (e *exact) ram(s *solution) int64 {
	u := e.p.use(s)
	return u.ram()
}

// thresholds lists what the largest op in the ring may be: nothing, or the
// bytes of one that streams.
func (e *exact) thresholds() []int64 {
	sizes := []int64{0}
	for i := range e.tops {
		if e.p.layerOf[i] < 0 && e.p.items[i].streams {
			sizes = append(sizes, e.bytes(i))
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// streamed is the residency in which dense ops above ringMax are resident;
// nil if it does not fit.
func (e *exact) streamed(ringMax int64) *solution {
	s := e.resident()
	var dense []int
	for i := range s.picks {
		if e.p.layerOf[i] < 0 && e.p.items[i].streams && e.bytes(i) <= ringMax {
			dense = append(dense, i)
			s.picks[i].resident = 0
		}
	}
	for n := range e.p.layers {
		e.open(s, n)
	}
	if e.ram(s) > e.p.free {
		return nil
	}
	slices.SortStableFunc(dense, func(a, b int) int { return cmp.Compare(e.bytes(b), e.bytes(a)) })
	for _, i := range dense {
		s.picks[i] = e.p.items[i].whole(e.tops[i])
		// The ring may grow, too: ops that were apart become neighbours.
		if e.ram(s) > e.p.free {
			s.picks[i].resident = 0
		}
	}
	e.grow(s, e.p.free-e.ram(s))
	return s
}

// open makes a layer's experts stream through the fewest slots: one token's
// working set.
func (e *exact) open(s *solution, n int) {
	l := &e.p.layers[n]
	var largest int64
	for _, i := range l.experts {
		s.picks[i].resident = 0
		largest = max(largest, e.bytes(i))
	}
	s.banks[n] = bank{slots: l.topK, tier: 0, bytes: largest}
}

// grow gives what is left to slots, most saved reads per byte first. A layer
// in which every expert has a slot holds them for good instead.
func (e *exact) grow(s *solution, room int64) {
	var h moves
	push := func(n int) {
		l, b := &e.p.layers[n], s.banks[n]
		if b.slots == 0 || b.slots >= len(l.experts) || b.bytes > room {
			return
		}
		saved := float64(l.topK) * (l.hit[b.slots+1] - l.hit[b.slots])
		heap.Push(&h, move{item: n, ratio: saved})
	}
	for n := range e.p.layers {
		push(n)
	}
	for len(h) > 0 {
		n := heap.Pop(&h).(move).item
		b := &s.banks[n]
		if b.bytes > room {
			continue
		}
		room -= b.bytes
		if b.slots++; b.slots == len(e.p.layers[n].experts) {
			for _, i := range e.p.layers[n].experts {
				s.picks[i] = e.p.items[i].whole(e.tops[i])
			}
			*b = bank{}
			continue
		}
		push(n)
	}
}

// fitExact takes away top tiers, those that take most bytes, until the mode
// "exact" fits too. With defaults only, what the scheduled mode does fits.
func (p *problem) fitExact(ladders []ladder, scheduled *solution) *solution {
	for {
		if s, ok := p.exactResidency(ladders); ok {
			return s
		}
		var most int64
		for i, l := range ladders {
			most = max(most, p.items[i].growth(l))
		}
		if most == 0 {
			return p.withoutUpgrades(scheduled)
		}
		for i, l := range ladders {
			if p.items[i].growth(l) == most {
				ladders[i] = l[:len(l)-1]
			}
		}
	}
}

// growth is how many bytes more the top of a ladder takes than the default.
// It is positive for every ladder of several tiers: less KL costs bytes.
func (it *item) growth(l ladder) int64 {
	if len(l) == 1 {
		return 0
	}
	return max(1, it.levels[l[len(l)-1]].bytes-it.levels[l[0]].bytes)
}

// withoutUpgrades is a solution without slots over resident experts.
func (p *problem) withoutUpgrades(s *solution) *solution {
	s = s.clone()
	for n := range s.banks {
		if s.banks[n].tier == 1 {
			s.banks[n] = bank{}
		}
	}
	return s
}
