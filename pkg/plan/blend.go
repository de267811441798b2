package plan

import (
	"cmp"
	"slices"

	"substrate/pkg/footprint"
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
func (p *problem) differences(sol, other *solution, total *usage) []part {
	var parts []part
	for _, i := range p.dense {
		if sol.picks[i] != other.picks[i] {
			parts = append(parts, part{item: i, layer: -1})
		}
	}
	for n := range p.layers {
		if sol.banks[n] != other.banks[n] || slices.ContainsFunc(p.layers[n].experts, func(e int) bool { return sol.picks[e] != other.picks[e] }) {
			parts = append(parts, part{item: -1, layer: n})
		}
	}
	for j := range parts {
		q := &parts[j]
		u := p.exchange(q, sol, other, *total)
		p.exchange(q, sol, other, u)
		q.kl, q.ram, q.time = u.kl-total.kl, float64(u.ram()-total.ram()), u.timeNs()-total.timeNs()
	}
	return parts
}

// exchange swaps a part of two solutions and returns the usage of the first
// that total becomes.
func (p *problem) exchange(q *part, a, b *solution, total usage) usage {
	if i := q.item; i >= 0 {
		p.itemUse(&total, i, a.picks[i], -1)
		a.picks[i], b.picks[i] = b.picks[i], a.picks[i]
		p.itemUse(&total, i, a.picks[i], 1)
		total.ring = footprint.RingBytes(p.ringOps(a))
		return total
	}
	n := q.layer
	p.bankUse(&total, a, n, -1)
	for _, e := range p.layers[n].experts {
		p.itemUse(&total, e, a.picks[e], -1)
		a.picks[e], b.picks[e] = b.picks[e], a.picks[e]
		p.itemUse(&total, e, a.picks[e], 1)
	}
	a.banks[n], b.banks[n] = b.banks[n], a.banks[n]
	p.bankUse(&total, a, n, 1)
	return total
}

// quicken takes a solution that is too slow towards one that exceeds the RAM,
// most time per byte first, as far as the RAM goes. It reports whether the
// solution then holds the limits.
func (p *problem) quicken(sol, other *solution, lim limits) bool {
	other = other.clone()
	total := p.use(sol)
	parts := p.differences(sol, other, &total)
	perByte := func(q part) float64 { return -q.time / max(1, q.ram) }
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(perByte(b), perByte(a)) })
	for j := range parts {
		if lim.holdTime(&total) {
			break
		}
		u := p.exchange(&parts[j], sol, other, total)
		if u.ram() <= lim.ram && u.timeNs() < total.timeNs() {
			total = u
		} else {
			p.exchange(&parts[j], sol, other, u)
		}
	}
	total = p.use(sol)
	return lim.hold(&total)
}

// approach takes a solution that holds the limits towards one that does not,
// most KL first, as far as they still hold.
func (p *problem) approach(sol, other *solution, lim limits) {
	other = other.clone()
	total := p.use(sol)
	parts := p.differences(sol, other, &total)
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.kl, b.kl) })
	for j := range parts {
		if parts[j].kl >= 0 {
			break
		}
		if u := p.exchange(&parts[j], sol, other, total); lim.hold(&u) {
			total = u
		} else {
			p.exchange(&parts[j], sol, other, u)
		}
	}
}
