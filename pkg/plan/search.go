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

// relaxation is what pricing the resources finds.
type relaxation struct {
	bound  float64 // no solution of the mode within the limits has less KL
	prices prices  // at which the bound was found

	sol  *solution // the best found that holds the limits; nil if none
	use  usage
	over *solution // one next to it that does not hold them; nil if KL could not be less
}

// result is a solution of one search within limits, with its bound.
type result struct {
	relaxation
	search *search // nil if it was made without one
	lim    limits
	static *result // the best without streaming, where that is another
}

// Steps of the bisections, and the range of prices in nats per byte and per
// ns: KLs are 1e-12 to 10 nats, records 4 KiB to 10 GiB. At the highest price
// of RAM nothing else counts, at the highest price of time (and of disk)
// nothing but RAM does. Bisecting the logarithm of the price, n steps leave
// an error of a factor of e^(95/2^n).
const (
	ramSteps     = 27
	timeSteps    = 16
	minPrice     = 1e-26
	maxTimePrice = 1e3
	maxRAMPrice  = 1e15
)

// bisect narrows a price: try reports whether its solution holds the limit
// that the price is for, and wants a lower price then.
func bisect(steps int, highest float64, try func(price float64) (holds bool)) {
	lo, hi := math.Log(minPrice), math.Log(highest)
	for range steps {
		mid := (lo + hi) / 2
		if try(math.Exp(mid)) {
			hi = mid
		} else {
			lo = mid
		}
	}
}

// raise takes the better of two bounds.
func (r *relaxation) raise(bound float64, at prices) {
	if bound > r.bound {
		r.bound, r.prices = bound, at
	}
}

// withinDisk prices disk where it is short, on top of time and RAM.
func (s *search) withinDisk(lim limits) relaxation {
	best := s.withinTime(lim, 0)
	if best.sol == nil || lim.holdDisk(&best.use) {
		return best
	}
	best.sol, best.over = nil, best.sol
	try := func(price float64) bool {
		r := s.withinTime(lim, price)
		best.raise(r.bound, r.prices)
		if r.sol == nil {
			return false
		}
		if !lim.holdDisk(&r.use) {
			best.over = r.sol
			return false
		}
		best.sol, best.use = r.sol, r.use
		return true
	}
	if try(maxTimePrice) {
		bisect(timeSteps, maxTimePrice, try)
	}
	return best
}

// withinTime prices time where it is short, on top of RAM. The time of a
// token is max(compute, reads ahead) + demands, which is at least any mixture
// of compute and reads ahead, plus demands: the price of every mixture gives
// a bound, and the best solution found under any of them counts.
func (s *search) withinTime(lim limits, disk float64) relaxation {
	best := s.withinRAM(lim, prices{disk: disk})
	if best.sol == nil || lim.holdTime(&best.use) {
		return best
	}
	best.sol, best.over = nil, best.sol
	for _, mix := range s.mixes() {
		if mix > 0 && best.sol != nil && best.use.computeNs <= best.use.ringNs {
			break // compute is not what lacks
		}
		over := best.over
		try := func(price float64) bool {
			r := s.withinRAM(lim, prices{compute: mix * price, ring: (1 - mix) * price, demand: price, disk: disk})
			best.raise(r.bound, r.prices)
			if r.sol == nil {
				return false
			}
			// The bound rises towards the price at which the mixture just
			// holds, on average over the two solutions next to the RAM.
			holds := s.average(&r, lim, mix) <= lim.timeNs
			if !lim.holdTime(&r.use) && (r.over == nil || !s.p.quicken(r.sol, r.over, lim)) {
				over = r.sol
				return holds
			}
			r.use = s.p.use(r.sol)
			if best.sol == nil || r.use.kl < best.use.kl {
				best.sol, best.use, best.over = r.sol, r.use, over
			}
			return holds
		}
		try(maxTimePrice)
		bisect(timeSteps, maxTimePrice, try)
	}
	return best
}

// average is the time of the mixture that the two solutions of a relaxation
// take if they are mixed so that they take just the RAM there is.
func (s *search) average(r *relaxation, lim limits, mix float64) float64 {
	mixed := func(u *usage) float64 { return mix*u.computeNs + (1-mix)*u.ringNs + u.demandNs }
	fits := mixed(&r.use)
	if r.over == nil {
		return fits
	}
	u := s.p.use(r.over)
	f := float64(lim.ram-r.use.ram()) / max(1, float64(u.ram()-r.use.ram()))
	f = min(max(f, 0), 1)
	return (1-f)*fits + f*mixed(&u)
}

// mixes are the parts that compute has in the price of time that are tried.
func (s *search) mixes() []float64 {
	if s.mode.ringMax == 0 {
		return []float64{1} // nothing is read ahead
	}
	return []float64{0, 0.5, 1}
}

// fastest is the least time of a token that the search finds within the RAM,
// in ns, with what is read then; ok is false if nothing fits the RAM.
func (s *search) fastest(lim limits) (best usage, ok bool) {
	for _, mix := range s.mixes() {
		r := s.withinRAM(lim, prices{compute: mix * maxTimePrice, ring: (1 - mix) * maxTimePrice, demand: maxTimePrice})
		if r.sol == nil {
			return best, false
		}
		if r.over != nil {
			s.p.quicken(r.sol, r.over, limits{ram: lim.ram, timeNs: 1})
			r.use = s.p.use(r.sol)
		}
		if !ok || r.use.timeNs() < best.timeNs() {
			best, ok = r.use, true
		}
	}
	return best, ok
}

// withinRAM prices RAM until the solution fits.
func (s *search) withinRAM(lim limits, pr prices) relaxation {
	best := relaxation{bound: math.Inf(-1)}
	fitting, exceeding := -1.0, -1.0
	fits := func(price float64) bool {
		pr.ram = price
		r := s.relax(pr, nil)
		best.raise(r.cost-price*float64(lim.ram-s.mode.ringLeast)-pr.demand*lim.timeNs-pr.disk*float64(lim.disk), pr)
		if r.ram() > lim.ram {
			exceeding = price
			return false
		}
		fitting = price
		return true
	}
	if !fits(0) {
		if !fits(maxRAMPrice) {
			return best
		}
		exceeding = 0
		bisect(ramSteps, maxRAMPrice, fits)
	}
	at := func(price float64) *solution {
		pr.ram = price
		sol := s.p.newSolution()
		s.relax(pr, sol)
		return sol
	}
	best.sol = at(fitting)
	best.use = s.p.use(best.sol)
	if exceeding >= 0 {
		best.over = at(exceeding)
	}
	return best
}

func (p *problem) newSolution() *solution {
	return &solution{picks: make([]pick, len(p.items)), banks: make([]bank, len(p.layers))}
}
