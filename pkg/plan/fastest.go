package plan

import (
	"cmp"
	"math"
	"slices"
)

// maxTimePrice is a price of time, in nats per ns, at which KL does not count.
const maxTimePrice = 1e3

// mixes are the parts that compute has in the price of time that are tried:
// the time of a token is max(compute, reads ahead) + demands, at least any
// mixture of the two, plus demands.
func (s *search) mixes() []float64 {
	if s.mode.ringMax == 0 {
		return []float64{1} // nothing is read ahead
	}
	if len(s.p.items) > smallModel {
		return []float64{0, 1}
	}
	return []float64{0, 0.5, 1}
}

// fastest is what the solution of least time that the search finds within the
// RAM takes; ok is false if nothing fits the RAM.
func (s *search) fastest(lim limits) (best usage, ok bool) {
	sol := s.fastestSolution(lim)
	if sol == nil {
		return usage{}, false
	}
	return s.p.use(sol), true
}

// fastestSolution is that solution; nil if nothing fits the RAM.
func (s *search) fastestSolution(lim limits) (best *solution) {
	lim = limits{ram: lim.ram}
	least := math.Inf(1)
	for _, mix := range s.mixes() {
		base := prices{compute: mix * maxTimePrice, ring: (1 - mix) * maxTimePrice, demand: maxTimePrice}
		r := s.price(lim, base, nil, math.Inf(1))
		if math.IsInf(r.bound, 1) {
			break
		}
		near := []*solution{s.solution(base.plus(prices{ram: maxRAMPrice}))}
		for _, pr := range r.active {
			near = append(near, s.solution(pr))
		}
		for _, sol := range near {
			if u := s.p.use(sol); u.ram() > lim.ram {
				continue
			}
			sol = sol.clone()
			for _, other := range near {
				s.p.quicken(sol, other, &base, lim.ram)
			}
			if u := s.p.use(sol); u.timeNs() < least {
				best, least = sol, u.timeNs()
			}
		}
	}
	return best
}

// quicken takes a solution towards another as far as the RAM goes, what saves
// most time first.
func (p *problem) quicken(sol, other *solution, pr *prices, ram int64) {
	other = other.clone()
	total := p.use(sol)
	parts := p.differences(sol, other, pr, &total)
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.paid, b.paid) })
	for j := range parts {
		if u := p.exchange(&parts[j], sol, other, total); u.ram() <= ram && u.timeNs() < total.timeNs() {
			total = u
		} else {
			p.exchange(&parts[j], sol, other, u)
		}
	}
}

// fits reports whether anything fits the RAM, whatever time it takes.
func (s *search) fits(ram int64) bool {
	u := s.p.use(s.solution(prices{ram: maxRAMPrice}))
	return u.ram() <= ram
}
