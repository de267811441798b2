package plan

import (
	"math"
	"slices"
)

// limits is what a search may spend.
type limits struct {
	ram    int64   // bytes for weights, slots, ring and what the KV cache takes above its smallest
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
	bound   float64   // no solution of the mode within the limits has less KL; +Inf: there is none
	prices  prices    // at which the bound was found
	active  []prices  // of the solutions that are mixed in the end, most weight first
	weights []float64 // of those
	tried   []prices  // without the base, a good start elsewhere
	// Prices whose solution all but surely holds the limits, the one of least
	// cost: what rounding starts from.
	holding     prices
	holdingCost float64 // +Inf if there is none
}

// raise takes the better of two bounds.
func (r *relaxation) raise(bound float64, at prices) {
	if bound > r.bound {
		r.bound, r.prices = bound, at
	}
}

// resource is one limit of a search as the linear program sees it.
type resource struct {
	limit float64
	use   func(a *amounts) float64
	price func(pr *prices, v float64) // adds the price of one unit
}

// maxResources is how many there can be: RAM, disk, and two for the time.
const maxResources = 4

// resources lists the limits that can bind. The time of a token is
// max(compute, reads ahead) + demands, so both compute + demands and reads
// ahead + demands must hold.
func (s *search) resources(lim limits) []resource {
	list := []resource{{
		limit: float64(max(1, lim.ram-s.mode.ringLeast)),
		use:   func(a *amounts) float64 { return float64(a.ram) },
		price: func(pr *prices, v float64) { pr.ram += v },
	}}
	if lim.disk > 0 {
		list = append(list, resource{
			limit: float64(lim.disk),
			use:   func(a *amounts) float64 { return float64(a.disk) },
			price: func(pr *prices, v float64) { pr.disk += v },
		})
	}
	if lim.timeNs > 0 {
		list = append(list, resource{
			limit: lim.timeNs,
			use:   func(a *amounts) float64 { return a.computeNs + a.demandNs },
			price: func(pr *prices, v float64) { pr.compute += v; pr.demand += v },
		})
	}
	if lim.timeNs > 0 && s.mode != (mode{}) {
		list = append(list, resource{
			limit: lim.timeNs,
			use:   func(a *amounts) float64 { return a.ringNs + a.demandNs },
			price: func(pr *prices, v float64) { pr.ring += v; pr.demand += v },
		})
	}
	return list
}

const (
	// dualSteps bounds the prices that are tried for one relaxation.
	dualSteps = 120
	// dualGap is the relative distance between the bound and the least KL of
	// a mixture at which prices are good enough.
	dualGap = 2e-6
	// penalty is what exceeding a limit by all of itself costs, in times of
	// the largest cost: what no mixture avoids then is taken for impossible.
	penalty = 1e7
	// maxRAMPrice is a price of RAM, in nats per byte, at which nothing else
	// counts.
	maxRAMPrice = 1e15
)

// price finds the prices at which all items, deciding for themselves, use
// what there is: those of the greatest bound. The prices come on top of base
// prices, of which KL and they are the cost to minimise. It starts from some
// that were good for another mode or limit, and stops when the bound reaches
// ceiling.
//
// Every try gives a solution; the next prices are those of the cheapest
// mixture of the solutions so far that holds the limits on average (column
// generation; Kelley's cutting planes seen from the other side). When no
// solution improves the mixture, it is done.
func (s *search) price(lim limits, base prices, warm []prices, ceiling float64) relaxation {
	best := relaxation{bound: math.Inf(-1), holdingCost: math.Inf(1)}
	resources := s.resources(lim)
	least := s.relax(base.plus(prices{ram: maxRAMPrice}))
	if over := float64(least.ram) - resources[0].limit; over > 0 {
		// At this price what lacks costs more than all that can be lost.
		best.prices.ram = 2 * s.p.worstKL / over
		best.bound = math.Inf(1)
		return best
	}
	mix := mixture{resources: len(resources), penalty: penalty * (s.p.worstKL + least.at(&base))}
	use := make([]float64, len(resources))
	try := func(pr prices) {
		best.tried = append(best.tried, pr)
		full := base.plus(pr)
		a := s.relax(full)
		surely := a.ram+s.ring <= lim.ram
		for r, res := range resources {
			use[r] = res.use(&a) / res.limit
			surely = surely && use[r] <= 1
		}
		cost := a.at(&base)
		mix.add(cost, use)
		best.raise(a.at(&full)-pr.ram*resources[0].limit-pr.disk*float64(lim.disk)-pr.demand*lim.timeNs, full)
		if surely && cost < best.holdingCost {
			best.holding, best.holdingCost = full, cost
		}
	}
	for _, pr := range warm {
		try(pr)
	}
	if len(warm) == 0 {
		try(prices{})
		try(prices{ram: maxRAMPrice})
	}
	for range dualSteps {
		value, duals, excess := mix.solve()
		if value-best.bound <= dualGap*math.Abs(value) {
			if excess > 1e-9*mix.penalty {
				best.bound = math.Inf(1)
			}
			break
		}
		var pr prices
		for r, res := range resources {
			res.price(&pr, duals[r]/res.limit)
		}
		if best.bound >= ceiling || slices.Contains(best.tried, pr) {
			break
		}
		try(pr)
	}
	for _, v := range mix.active() {
		best.active = append(best.active, best.tried[v].plus(base))
		best.weights = append(best.weights, mix.weight(v))
	}
	// Somewhat higher prices leave something over.
	for more := 1e-4; more < 1 && best.holdingCost > 1.01*best.bound; more *= 4 {
		try(best.prices.minus(base).times(1 + more))
	}
	return best
}

// boundAt is the greatest bound at any of some prices, of which the last ones
// are looked at.
func (s *search) boundAt(lim limits, at []prices) (bound float64, best prices) {
	for _, pr := range at[max(0, len(at)-quickPrices):] {
		if v := s.boundOf(lim, pr); v > bound {
			bound, best = v, pr
		}
	}
	return bound, best
}

// boundOf is the bound at prices.
func (s *search) boundOf(lim limits, pr prices) float64 {
	a := s.relax(pr)
	return a.at(&pr) - pr.ram*float64(lim.ram-s.mode.ringLeast) - pr.disk*float64(lim.disk) - pr.demand*lim.timeNs
}

// quickPrices is how many prices a first look at a mode tries.
const quickPrices = 24
