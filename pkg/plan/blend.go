package plan

import (
	"cmp"
	"slices"
)

// Two solutions next to a limit, one on either side, often differ in many
// ops at once: alike layers all go one way, and where every byte streamed
// costs the same time, all ops stream or none does. Between them lie better
// solutions, in which some ops are as in one and the others as in the other.

// part is an op or a layer of experts in which two solutions differ.
type part struct {
	item  int // a dense item, or -1
	layer int // an index into layers, or -1
	kl    float64
	ram   float64
	time  float64
}

// differences lists the parts, with what becomes of sol if only that part is
// taken from other.
func (p *problem) differences(sol, other *solution) []part {
	var parts []part
	for i := range p.items {
		if p.layerOf[i] < 0 && sol.picks[i] != other.picks[i] {
			parts = append(parts, part{item: i, layer: -1})
		}
	}
	for n := range p.layers {
		if sol.banks[n] != other.banks[n] || slices.ContainsFunc(p.layers[n].experts, func(e int) bool { return sol.picks[e] != other.picks[e] }) {
			parts = append(parts, part{item: -1, layer: n})
		}
	}
	base := p.use(sol)
	for j := range parts {
		q := &parts[j]
		p.exchange(q, sol, other)
		u := p.use(sol)
		p.exchange(q, sol, other)
		q.kl, q.ram, q.time = u.kl-base.kl, float64(u.ram()-base.ram()), u.timeNs()-base.timeNs()
	}
	return parts
}

// exchange swaps a part of two solutions.
func (p *problem) exchange(q *part, a, b *solution) {
	if q.item >= 0 {
		a.picks[q.item], b.picks[q.item] = b.picks[q.item], a.picks[q.item]
		return
	}
	for _, e := range p.layers[q.layer].experts {
		a.picks[e], b.picks[e] = b.picks[e], a.picks[e]
	}
	a.banks[q.layer], b.banks[q.layer] = b.banks[q.layer], a.banks[q.layer]
}

// quicken takes a solution that is too slow towards one that exceeds the RAM,
// most time per byte first, as far as the RAM goes. It reports whether the
// solution then holds the limits.
func (p *problem) quicken(sol, other *solution, lim limits) bool {
	other = other.clone()
	parts := p.differences(sol, other)
	perByte := func(q part) float64 { return -q.time / max(1, q.ram) }
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(perByte(b), perByte(a)) })
	u := p.use(sol)
	for j := range parts {
		if lim.holdTime(&u) {
			break
		}
		p.exchange(&parts[j], sol, other)
		if v := p.use(sol); v.ram() <= lim.ram && v.timeNs() < u.timeNs() {
			u = v
		} else {
			p.exchange(&parts[j], sol, other)
		}
	}
	return lim.hold(&u)
}

// approach takes a solution that holds the limits towards one that does not,
// most KL first, as far as they still hold.
func (p *problem) approach(sol, other *solution, lim limits) {
	other = other.clone()
	parts := p.differences(sol, other)
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.kl, b.kl) })
	for j := range parts {
		if parts[j].kl >= 0 {
			break
		}
		p.exchange(&parts[j], sol, other)
		if u := p.use(sol); !lim.hold(&u) {
			p.exchange(&parts[j], sol, other)
		}
	}
}
