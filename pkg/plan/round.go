package plan

import (
	"cmp"
	"math"
	"slices"

	"substrate/pkg/footprint"
)

// The solutions that a relaxation mixes are each the cheapest at its prices,
// and nearly as cheap at those of the others; but one holds the limits with
// much to spare and another does not hold them. Between them lie better ones,
// in which some ops are as in one and the rest as in the other.

// round makes a solution that holds the limits of what a relaxation found;
// nil if it finds none.
func (s *search) round(r *relaxation, lim limits) *solution {
	lim.timeNs *= 1 - 1e-9 // sums that are kept while moving are off by less
	var near []*solution
	for _, pr := range r.active {
		near = append(near, s.solution(pr))
	}
	if !math.IsInf(r.holdingCost, 1) {
		near = append(near, s.solution(r.holding))
	}
	var best *solution
	least := math.Inf(1)
	for _, start := range s.starts(near, &r.prices, lim) {
		for range roundPasses {
			before := s.p.use(start)
			for _, other := range near {
				s.p.approach(start, other, &r.prices, lim)
			}
			if u := s.p.use(start); u.kl >= before.kl*(1-1e-7) {
				break
			}
		}
		s.fill(start, lim)
		if u := s.p.use(start); lim.hold(&u) && u.kl < least {
			best, least = start, u.kl
		}
	}
	return best
}

// dive rounds in two steps where ops may stream through the ring: at one price
// all of them stream or none does, so first as many are taken to stream as the
// mixture does on average, and then the rest is priced again. nil if that does
// not apply or finds nothing.
func (s *search) dive(r *relaxation, lim limits) *solution {
	if s.mode.ringMax == 0 || len(r.active) < 2 {
		return nil
	}
	var want float64 // time of reads ahead
	for k, pr := range r.active {
		want += r.weights[k] * s.denseRing(&pr)
	}
	most, least := &r.active[0], &r.active[0]
	for k := range r.active {
		if s.denseRing(&r.active[k]) > s.denseRing(most) {
			most = &r.active[k]
		}
		if s.denseRing(&r.active[k]) < s.denseRing(least) {
			least = &r.active[k]
		}
	}
	fixed := *s
	fixed.choices = slices.Clone(s.choices)
	sum := s.denseRing(least)
	sol := s.p.newSolution()
	for _, i := range s.p.dense {
		a, b := s.cheapest(i, least), s.cheapest(i, most)
		c := a
		if d := b.ringNs - a.ringNs; d != 0 && sum+d/2 <= want {
			c = b
			sum += d
		}
		sol.picks[i] = c.pick
		fixed.choices[i] = slices.DeleteFunc(slices.Clone(s.choices[i]), func(o choice) bool { return (o.streamed > 0) != (c.streamed > 0) })
	}
	fixed.mode.ringLeast = footprint.RingBytes(s.p.ringOps(sol))
	q := fixed.price(lim, prices{}, r.active, math.Inf(1))
	s.work = fixed.work
	if math.IsInf(q.bound, 1) {
		return nil
	}
	found := fixed.round(&q, lim)
	s.work = fixed.work
	return found
}

// denseRing is the time of the reads of dense ops at prices.
func (s *search) denseRing(pr *prices) (ns float64) {
	for _, i := range s.p.dense {
		ns += s.cheapest(i, pr).ringNs
	}
	return ns
}

const (
	// roundPasses bounds the passes over the solutions to round towards: what
	// one gives up, another may use.
	roundPasses = 4
	// roundStarts is how many of them are a start.
	roundStarts = 2
)

// starts are solutions near the given ones that hold the limits, first those
// that need least change for it.
func (s *search) starts(near []*solution, pr *prices, lim limits) (starts []*solution) {
	order := slices.Clone(near)
	excess := func(sol *solution) float64 {
		u := s.p.use(sol)
		return lim.excess(&u, pr)
	}
	slices.SortStableFunc(order, func(a, b *solution) int { return cmp.Compare(excess(a), excess(b)) })
	for _, sol := range order {
		if len(starts) == roundStarts {
			break
		}
		sol = sol.clone()
		if s.p.repair(sol, near, pr, lim) {
			starts = append(starts, sol)
		}
	}
	return starts
}

// part is what two solutions differ in and can be exchanged by itself: an
// item, or a layer of experts as a whole, or the number of its slots.
type part struct {
	item  int // or -1
	layer int // index into layers, or -1
	slots bool
	kl    float64
	paid  float64 // for resources, at prices; nil prices: 0
}

// differences lists the parts of two solutions, with what becomes of sol if
// only that part is taken from other.
func (p *problem) differences(sol, other *solution, pr *prices, total *usage) []part {
	var parts []part
	for _, i := range p.dense {
		if sol.picks[i] != other.picks[i] {
			parts = append(parts, part{item: i, layer: -1})
		}
	}
	for n := range p.layers {
		if !p.alike(sol, other, n) {
			parts = append(parts, part{item: -1, layer: n})
			continue
		}
		for _, e := range p.layers[n].experts {
			if sol.picks[e] != other.picks[e] {
				parts = append(parts, part{item: e, layer: n})
			}
		}
		if sol.banks[n] != other.banks[n] {
			parts = append(parts, part{item: -1, layer: n, slots: true})
		}
	}
	for j := range parts {
		q := &parts[j]
		u := p.exchange(q, sol, other, *total)
		p.exchange(q, sol, other, u)
		d := u.minus(total)
		q.kl = d.kl
		d.kl = 0
		q.paid = d.at(pr)
	}
	return parts
}

// alike reports whether the experts of layer n may be mixed one by one: they
// stream alike, and both take no more classes together than one may.
func (p *problem) alike(a, b *solution, n int) bool {
	x, y := a.banks[n], b.banks[n]
	if x.tier != y.tier || x.bytes != y.bytes {
		return false
	}
	used := make([]bool, p.layers[n].ids)
	count := 0
	for j, e := range p.layers[n].experts {
		for _, k := range []pick{a.picks[e], b.picks[e]} {
			if id := p.layers[n].idOf[j][k.level]; !used[id] {
				used[id] = true
				count++
			}
		}
	}
	return count <= p.layers[n].limit
}

// exchange swaps a part of two solutions and returns the usage of the first
// that total becomes.
func (p *problem) exchange(q *part, a, b *solution, total usage) usage {
	if q.layer < 0 {
		i := q.item
		p.itemUse(&total, i, a.picks[i], -1)
		ring := p.items[i].streamed(a.picks[i]) > 0 || p.items[i].streamed(b.picks[i]) > 0
		a.picks[i], b.picks[i] = b.picks[i], a.picks[i]
		p.itemUse(&total, i, a.picks[i], 1)
		if ring {
			total.ring = footprint.RingBytes(p.ringOps(a))
		}
		return total
	}
	n := q.layer
	experts := p.layers[n].experts
	switch {
	case q.slots:
		experts = nil
	case q.item >= 0:
		experts = []int{q.item}
	}
	p.bankUse(&total, a, n, -1)
	for _, e := range experts {
		p.itemUse(&total, e, a.picks[e], -1)
		a.picks[e], b.picks[e] = b.picks[e], a.picks[e]
		p.itemUse(&total, e, a.picks[e], 1)
	}
	if q.item < 0 {
		a.banks[n], b.banks[n] = b.banks[n], a.banks[n]
	}
	p.bankUse(&total, a, n, 1)
	return total
}

// repair takes a solution that exceeds the limits towards the others, as long
// as it exceeds them less: what loses least KL for what it saves at the prices
// first. It reports whether it then holds them.
func (p *problem) repair(sol *solution, others []*solution, pr *prices, lim limits) bool {
	total := p.use(sol)
	excess := lim.excess(&total, pr)
	for _, other := range others {
		if excess == 0 {
			break
		}
		other = other.clone()
		parts := p.differences(sol, other, pr, &total)
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.kl+a.paid, b.kl+b.paid) })
		for j := range parts {
			u := p.exchange(&parts[j], sol, other, total)
			if e := lim.excess(&u, pr); e < excess {
				total, excess = u, e
			} else {
				p.exchange(&parts[j], sol, other, u)
			}
			if excess == 0 {
				break
			}
		}
	}
	total = p.use(sol)
	return lim.hold(&total)
}

// excess is what a usage exceeds the limits by, at prices; what has no price
// counts a little.
func (l limits) excess(u *usage, pr *prices) float64 {
	ram := pr.ram * float64(l.ram)
	time := pr.demand * l.timeNs
	disk := pr.disk * float64(l.disk)
	least := max(1e-3*(ram+time+disk), 1e-300)
	sum := max(ram, least) * max(0, float64(u.ram()-l.ram)/float64(max(1, l.ram)))
	if l.timeNs > 0 {
		sum += max(time, least) * max(0, u.timeNs()/l.timeNs-1)
	}
	if l.disk > 0 {
		sum += max(disk, least) * max(0, float64(u.disk-l.disk)/float64(l.disk))
	}
	return sum
}

// approach takes a solution that holds the limits towards one that need not,
// as far as they still hold: parts that give most KL for what they cost at
// the prices first, before them those that cost less and give KL, too.
func (p *problem) approach(sol, other *solution, pr *prices, lim limits) {
	other = other.clone()
	total := p.use(sol)
	parts := p.differences(sol, other, pr, &total)
	parts = slices.DeleteFunc(parts, func(q part) bool { return q.kl >= 0 && q.paid >= 0 })
	// A part that saves more than it loses makes room for others.
	worth := func(q part) float64 {
		switch {
		case q.paid <= 0 && q.kl <= 0:
			return math.Inf(1)
		case q.paid < 0:
			return -q.paid / q.kl
		}
		return -q.kl / q.paid
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(worth(b), worth(a)) })
	for j := range parts {
		if worth(parts[j]) < 1 && parts[j].kl > 0 {
			continue
		}
		if u := p.exchange(&parts[j], sol, other, total); lim.hold(&u) {
			total = u
		} else {
			p.exchange(&parts[j], sol, other, u)
		}
	}
}
