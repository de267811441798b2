package plan

import "math"

// limits is what a search may spend.
type limits struct {
	ram    int64   // bytes for weights, slots and ring
	disk   int64   // bytes for the default records; 0: no limit
	timeNs float64 // per token; 0: no limit
}

func (l limits) hold(u *usage) bool {
	return u.ram() <= l.ram && l.holdTime(u) && l.holdDisk(u)
}

func (l limits) holdTime(u *usage) bool { return l.timeNs == 0 || u.timeNs() <= l.timeNs }
func (l limits) holdDisk(u *usage) bool { return l.disk == 0 || u.disk <= l.disk }

// result is a solution within limits.
type result struct {
	sol    *solution
	use    usage
	bound  float64 // no plan of the same mode within the same limits has less KL
	prices prices  // at which the bound was found
	rivals []rival // bounds of other modes, none of which was solved to better

	search *search // that found it, and its limits, to fill with what is left over
	lim    limits
}

// rival is the bound of one mode.
type rival struct {
	bound  float64
	prices prices
}

// lowerBound is the bound of all modes together if there are ram bytes
// instead of what the limits said: bounds fall by the price of RAM.
func (r *result) lowerBound(ram int64) rival {
	least := rival{math.Inf(1), prices{}}
	for _, v := range append([]rival{{r.bound, r.prices}}, r.rivals...) {
		if v.bound -= v.prices.ram * float64(ram-r.lim.ram); v.bound < least.bound {
			least = v
		}
	}
	return least
}

// Steps of the bisections, and the range of prices in nats per byte and per
// ns: KLs are 1e-12 to 10 nats, records 4 KiB to 10 GiB. Bisecting the
// logarithm of the price, n steps leave an error of a factor of e^(67/2^n).
const (
	ramSteps  = 26
	timeSteps = 16
	minPrice  = 1e-26
	maxPrice  = 1e3
)

// bisect narrows a price: try reports whether its solution holds the limit
// that the price is for, and wants a lower price then.
func bisect(steps int, try func(price float64) (holds bool)) {
	lo, hi := math.Log(minPrice), math.Log(maxPrice)
	for range steps {
		mid := (lo + hi) / 2
		if try(math.Exp(mid)) {
			hi = mid
		} else {
			lo = mid
		}
	}
}

// solve minimises KL within the limits over one mode; nil if it finds no
// solution that holds them.
func (s *search) solve(lim limits) *result {
	best := s.withinDisk(lim)
	if best == nil {
		return nil
	}
	s.fill(best.sol, lim)
	best.use = s.p.use(best.sol)
	best.search, best.lim = s, lim
	return best
}

// withinDisk prices disk where it is short.
func (s *search) withinDisk(lim limits) *result {
	best := s.withinTime(lim, 0)
	if lim.disk == 0 || best != nil && lim.holdDisk(&best.use) {
		return best
	}
	best = nil
	bound := math.Inf(-1)
	bisect(timeSteps, func(price float64) bool {
		r := s.withinTime(lim, price)
		if r == nil {
			return false
		}
		bound = max(bound, r.bound)
		if !lim.holdDisk(&r.use) {
			return false
		}
		best = r
		return true
	})
	if best != nil {
		best.bound = bound
	}
	return best
}

// withinTime prices time where it is short. The time of a token is
// max(compute, reads ahead) + demands, which is at least any mixture of
// compute and reads ahead, plus demands: the price of every mixture gives a
// bound, and the best solution found under any of them counts.
func (s *search) withinTime(lim limits, disk float64) *result {
	best := s.withinRAM(lim, prices{disk: disk})
	if best == nil || lim.holdTime(&best.use) {
		return best
	}
	bound, at := best.bound, best.prices
	best = nil
	for _, mix := range s.mixes() {
		if mix > 0 && best != nil && best.use.computeNs <= best.use.ringNs {
			break // compute is not what lacks
		}
		try := func(price float64) bool {
			r := s.withinRAM(lim, prices{compute: mix * price, ring: (1 - mix) * price, demand: price, disk: disk})
			if r == nil {
				return false
			}
			if r.bound > bound {
				bound, at = r.bound, r.prices
			}
			if !lim.holdTime(&r.use) {
				return false
			}
			if best == nil || r.use.kl < best.use.kl {
				best = r
			}
			return true
		}
		if try(maxPrice) {
			bisect(timeSteps, try)
		}
	}
	if best != nil {
		best.bound, best.prices = bound, at
	}
	return best
}

// mixes are the parts that compute has in the price of time that are tried.
func (s *search) mixes() []float64 {
	if s.mode.ringMax == 0 {
		return []float64{1} // nothing is read ahead
	}
	return []float64{0, 1}
}

// fastest is the least time of a token that the search finds within the RAM,
// in ns, with what is read then; ok is false if nothing fits the RAM.
func (s *search) fastest(lim limits) (best usage, ok bool) {
	for _, mix := range s.mixes() {
		r := s.withinRAM(lim, prices{compute: mix * maxPrice, ring: (1 - mix) * maxPrice, demand: maxPrice})
		if r == nil {
			return best, false
		}
		if !ok || r.use.timeNs() < best.timeNs() {
			best, ok = r.use, true
		}
	}
	return best, ok
}

// withinRAM prices RAM until the solution fits; nil if even the smallest
// does not.
func (s *search) withinRAM(lim limits, pr prices) *result {
	bound, at, best := math.Inf(-1), pr, math.Inf(1)
	fits := func(price float64) bool {
		pr.ram = price
		r := s.relax(pr, nil)
		if b := r.cost - price*float64(lim.ram-s.mode.ringLeast) - pr.demand*lim.timeNs - pr.disk*float64(lim.disk); b > bound {
			bound, at = b, pr
		}
		if r.ram() > lim.ram {
			return false
		}
		best = price
		return true
	}
	if !fits(0) {
		if !fits(maxPrice) {
			return nil
		}
		bisect(ramSteps, fits)
	}
	pr.ram = best
	sol := s.p.newSolution()
	s.relax(pr, sol)
	return &result{sol: sol, use: s.p.use(sol), bound: bound, prices: at}
}

func (p *problem) newSolution() *solution {
	return &solution{picks: make([]pick, len(p.items)), banks: make([]bank, len(p.layers))}
}
