package plan

import (
	"math"
	"slices"

	"substrate/pkg/doc"
)

// certificate states in integers what bounds a result.
func (s *solver) certificate(r *result) *doc.Certificate {
	c := &doc.Certificate{
		LowerBound: picoNats(math.Floor, r.bound-r.charge),
		Value:      picoNats(math.Ceil, r.use.kl),
		Cleaned:    s.cleaned,
		RAMBytes:   r.lim.ram,
		DiskBytes:  r.lim.disk,
		TokenNs:    int64(math.Ceil(r.lim.timeNs)),
		Charge:     picoNats(math.Ceil, s.table.Floor),
		Classes:    s.opt.Classes,
		KVGiven:    s.given.KVCacheType != "",
	}
	c.LowerBound = min(c.LowerBound, c.Value)
	lim := r.lim
	lim.timeNs = float64(c.TokenNs)
	proved := math.Inf(1)
	for _, m := range r.modes {
		d := doc.ModeCase{RingMax: m.mode.ringMax, RingLeast: m.mode.ringLeast, Slots: m.mode.slots, Bounds: []doc.DualBound{}}
		if d.Bounds = s.dualBounds(m, lim); len(d.Bounds) > 0 {
			proved = min(proved, m.bound+m.charge-r.charge)
		} else {
			proved = 0
		}
		c.Modes = append(c.Modes, d)
	}
	if c.Value > 0 {
		c.RelativeGap = float64(c.Value-c.LowerBound) / float64(c.Value)
	}
	c.BySearch = picoNats(math.Floor, proved) < c.LowerBound-1-c.Value/roundingShare
	return c
}

// roundingShare is the part of the value by which the multipliers, which are
// rounded to integers, may prove less than the prices they stand for.
const roundingShare = 100_000

// supports are factors of the RAM at which a mode is bounded, too, for plans
// that are cut later.
var supports = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2}

// dualBounds states the bounds of a mode, that at the limits first, then those
// that are better at other amounts of RAM.
func (s *solver) dualBounds(m modeBound, lim limits) []doc.DualBound {
	first := m.prices
	if enough := 4 * s.problem.worstKL; m.search.boundOf(lim, first) > enough {
		// The mode is impossible. Bounds are concave in the prices, and not
		// below zero without any: smaller ones prove enough.
		first = first.times(enough / m.search.boundOf(lim, first))
	}
	at := append([]prices{first}, m.others(supportPrices)...)
	type line struct{ bound, slope float64 } // over RAM
	lines := make([]line, len(at))
	for i, pr := range at {
		lines[i] = line{m.search.boundOf(lim, pr), pr.ram}
	}
	taken := []int{0}
	for _, f := range supports {
		best := 0
		for i, l := range lines {
			more := (f - 1) * float64(lim.ram)
			if l.bound-l.slope*more > lines[best].bound-lines[best].slope*more {
				best = i
			}
		}
		if !slices.Contains(taken, best) {
			taken = append(taken, best)
		}
	}
	bounds := []doc.DualBound{}
	for _, i := range taken {
		if d, ok := s.dualBound(lines[i].bound, at[i]); ok {
			bounds = append(bounds, d)
		}
	}
	return bounds
}

// supportPrices is how many other prices a mode is bounded at.
const supportPrices = 12

// others thins the prices that were tried to some around the best, evenly by
// the logarithm of that of RAM.
func (m *modeBound) others(most int) []prices {
	var near []prices
	for _, pr := range m.tried {
		if f := pr.ram / m.prices.ram; f > 1e-3 && f < 1e3 && pr != m.prices {
			near = append(near, pr)
		}
	}
	slices.SortStableFunc(near, func(a, b prices) int {
		switch {
		case a.ram < b.ram:
			return -1
		case a.ram > b.ram:
			return 1
		}
		return 0
	})
	var kept []prices
	for i, pr := range near {
		left := float64(most-len(kept)) - 1
		if len(kept) == 0 || pr.ram > kept[len(kept)-1].ram*math.Pow(near[len(near)-1].ram/kept[len(kept)-1].ram, 1/max(1, left)) || i == len(near)-1 {
			kept = append(kept, pr)
		}
	}
	return kept[:min(most, len(kept))]
}

// dualBound writes a bound and its prices in integers of as many bits as a
// check of all items can add up in 62. It gives away what that rounds. ok is
// false if they do not fit a document.
func (s *solver) dualBound(bound float64, pr prices) (d doc.DualBound, ok bool) {
	m := s.problem.most()
	largest := 1e12 * (m.kl + pr.ram*float64(m.ram) + pr.disk*float64(m.disk) + pr.compute*m.computeNs + pr.ring*m.ringNs + pr.demand*m.demandNs)
	d.Shift = min(60-int(math.Ceil(math.Log2(max(1, largest)))), 62)
	if d.Shift < 0 {
		return d, false
	}
	for _, price := range []float64{pr.ram, pr.disk, pr.compute, pr.ring} { // 2^53 is what a document holds
		for d.Shift > 0 && math.Ldexp(1e12*price, d.Shift) > doc.MaxInteger {
			d.Shift--
		}
	}
	whole := func(price float64) int64 { return int64(math.Round(math.Ldexp(1e12*price, d.Shift))) }
	d.RAM, d.Disk, d.Compute, d.Read = whole(pr.ram), whole(pr.disk), whole(pr.compute), whole(pr.ring)
	// What rounding the prices can take away, and what adding up floats did.
	rounding := math.Ldexp(float64(m.ram+m.disk)+m.computeNs+m.ringNs+m.demandNs, -d.Shift-1)
	least := 1e12*bound - rounding - 1e-9*largest
	if least < 1-doc.MaxInteger || max(d.RAM, d.Disk, d.Compute, d.Read) > doc.MaxInteger {
		return d, false
	}
	d.LowerBound = int64(math.Floor(min(least, doc.MaxInteger))) - 1
	return d, true
}

// most is more than any solution takes, or may take, of anything.
func (p *problem) most() amounts {
	m := p.largest
	m.ram, m.disk = max(m.ram, p.free), max(m.disk, p.disk)
	return m
}

// largestOf adds up the most that every item takes.
func (p *problem) largestOf() amounts {
	m := amounts{kl: p.worstKL, computeNs: p.dispatchNs}
	for i := range p.items {
		it := &p.items[i]
		var bytes int64
		var ns float64
		for l := range it.levels {
			bytes = max(bytes, it.levels[l].bytes)
			ns = max(ns, it.levels[l].computeNs)
		}
		m.ram += 2 * bytes
		m.disk += bytes
		m.computeNs += 2 * ns * it.share
		m.ringNs += p.speeds.read(float64(bytes), bytes)
	}
	for n := range p.layers {
		l := &p.layers[n]
		largest := l.classes.bytes[len(l.classes.bytes)-1]
		m.demandNs += p.missNs(l, largest)
		for i := range l.upgrades {
			m.ringNs += l.upgrades[i].ringNs
		}
	}
	m.demandNs += m.computeNs + m.ringNs
	return m
}
