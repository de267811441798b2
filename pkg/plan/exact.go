package plan

// exactResidency decides where records live in the mode "exact", in which
// every op runs at its top level and there are no escalations: as many bytes
// of a token as fit are resident, the rest streams. ok is false if not even
// streaming everything fits.
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

// thresholds lists some of what the largest op in the ring may be: nothing, or
// the bytes of one that streams.
func (e *exact) thresholds() []int64 {
	sizes := []int64{0}
	for i := range e.tops {
		if e.p.layerOf[i] < 0 && e.p.items[i].streams {
			sizes = append(sizes, e.bytes(i))
		}
	}
	return thin(sortedSet(sizes), maxModes)
}

// streamed is the residency in which dense ops above ringMax are resident;
// nil if it does not fit.
func (e *exact) streamed(ringMax int64) *solution {
	s := e.resident()
	for i := range s.picks {
		if e.p.layerOf[i] < 0 && e.p.items[i].streams && e.bytes(i) <= ringMax {
			s.picks[i].resident = 0
		}
	}
	for n := range e.p.layers {
		e.open(s, n)
	}
	if e.ram(s) > e.p.free {
		return nil
	}
	e.p.settle(s, e.p.free)
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
