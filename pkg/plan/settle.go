package plan

import (
	"cmp"
	"container/heap"
	"slices"

	"substrate/pkg/footprint"
)

// settle gives the RAM that is left to what streams, at the levels that it
// has: fewer reads, the same KL. A resident dense byte saves one byte of reads
// per token, one of an expert's slot less; but dense reads may hide behind
// compute, those of experts never do.
func (p *problem) settle(s *solution, ram int64) {
	u := p.use(s)
	if hidden := u.ringNs <= u.computeNs; hidden {
		p.growSlots(s, ram)
		p.settleDense(s, ram)
		return
	}
	p.settleDense(s, ram)
	p.growSlots(s, ram)
}

// settleDense makes dense ops resident, largest first.
func (p *problem) settleDense(s *solution, ram int64) {
	var streaming []int
	for i := range p.items {
		if p.layerOf[i] < 0 && p.items[i].streamed(s.picks[i]) > 0 {
			streaming = append(streaming, i)
		}
	}
	slices.SortStableFunc(streaming, func(a, b int) int {
		return cmp.Compare(p.items[b].streamed(s.picks[b]), p.items[a].streamed(s.picks[a]))
	})
	u := p.use(s)
	for _, i := range streaming {
		before := s.picks[i]
		v := u
		p.itemUse(&v, i, before, -1)
		s.picks[i] = p.items[i].whole(before.level)
		p.itemUse(&v, i, s.picks[i], 1)
		// The ring may grow, too: ops that were apart become neighbours.
		v.ring = footprint.RingBytes(p.ringOps(s))
		if v.ram() > ram {
			s.picks[i] = before
		} else {
			u = v
		}
	}
}

// growSlots adds slots for experts that stream, most saved reads per byte
// first.
func (p *problem) growSlots(s *solution, ram int64) {
	u := p.use(s)
	room := ram - u.ram()
	var h moves
	residents := make([]int, len(p.layers))
	for n := range residents {
		residents[n] = p.residents(s, n)
	}
	push := func(n int) {
		l, b := &p.layers[n], s.banks[n]
		if b.slots == 0 || b.tier != 0 {
			return
		}
		held := b.slots + residents[n]
		if held >= len(l.experts) {
			room += p.holdAll(s, n)
		} else if b.bytes <= room {
			saved := float64(l.topK) * (l.hit[held+1] - l.hit[held])
			heap.Push(&h, move{item: n, ratio: saved})
		}
	}
	for n := range p.layers {
		push(n)
	}
	for len(h) > 0 {
		n := heap.Pop(&h).(move).item
		if b := &s.banks[n]; b.bytes <= room {
			room -= b.bytes
			b.slots++
			push(n)
		}
	}
}

// holdAll makes a layer resident in which every expert has a place, and
// returns the bytes that gives back.
func (p *problem) holdAll(s *solution, n int) int64 {
	room := int64(s.banks[n].slots) * s.banks[n].bytes
	for _, i := range p.layers[n].experts {
		room -= p.items[i].streamed(s.picks[i])
		s.picks[i] = p.items[i].whole(s.picks[i].level)
	}
	s.banks[n] = bank{}
	return room
}

// residents counts a layer's experts that do not stream.
func (p *problem) residents(s *solution, n int) (count int) {
	for _, i := range p.layers[n].experts {
		if p.items[i].streamed(s.picks[i]) == 0 {
			count++
		}
	}
	return count
}
