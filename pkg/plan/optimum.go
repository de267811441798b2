package plan

import (
	"math"
	"slices"
)

// result is a solution, and what bounds every other one.
type result struct {
	sol    *solution
	use    usage
	lim    limits
	search *search // nil if it was made without one
	charge float64 // of its mode
	bound  float64 // no solution costs less, charges included
	modes  []modeBound
	warm   []prices // that were good
}

// modeBound bounds the cost of all solutions of one mode by prices alone.
type modeBound struct {
	mode   mode
	search *search
	charge float64
	bound  float64 // +Inf: there is no solution
	prices prices
	tried  []prices
}

// resultOf is a solution that was made without a search, and has no bound.
func resultOf(sol *solution, u usage) *result { return &result{sol: sol, use: u} }

// charge is what a solution that streams must save to be taken: KL that
// measurements cannot tell is no reason to read.
func (s *solver) charge(m mode) float64 {
	if m == (mode{}) {
		return 0
	}
	return s.table.Floor
}

// optimum is the solution of least KL, charges included, over all modes.
// Without one, the error tells what lacks. It may start from a result within
// stricter limits.
func (s *solver) optimum(lim limits, start *result, work int) (*result, error) {
	b := brancher{lim: lim, least: math.Inf(1), value: math.Inf(1)}
	var warm []prices
	if start == nil {
		start = s.start
	}
	if start != nil {
		b.tried, warm = start.warm, start.warm
		if lim.hold(&start.use) && start.search != nil {
			b.best, b.use, b.value = start.sol, start.use, start.use.kl+start.charge
			b.mode = &node{search: start.search, charge: start.charge}
		}
	}
	modes := append([]mode{{}}, s.problem.modes()...)
	for i, m := range modes {
		n := b.add(newSearch(s.problem, m), s.charge(m), warm)
		if i < 2 { // the others start from the prices of these
			b.price(n)
			warm = b.tried
		}
	}
	b.run(work)
	var bounds []modeBound
	for _, n := range b.roots {
		bounds = append(bounds, modeBound{n.mode, n.search, n.charge, n.bound - n.charge, n.prices, b.tried})
	}
	best := b.result()
	if best == nil {
		if best = s.anyOf(modes, lim); best == nil {
			return nil, s.lacks(modes, lim)
		}
		best.bound = min(b.least, best.use.kl+best.charge)
	}
	best.modes, best.warm = bounds, b.tried
	return best, nil
}

// anyOf is the fastest solution of the first mode whose fastest holds the
// limits; nil if none does.
func (s *solver) anyOf(modes []mode, lim limits) *result {
	if lim.timeNs == 0 {
		return nil
	}
	for _, m := range modes {
		search := newSearch(s.problem, m)
		sol := search.fastestSolution(lim)
		if sol == nil {
			continue
		}
		if u := s.problem.use(sol); lim.hold(&u) {
			return &result{sol: sol, use: u, lim: lim, search: search, charge: s.charge(m)}
		}
	}
	return nil
}

// lacks tells why there is no solution.
func (s *solver) lacks(modes []mode, lim limits) error {
	for _, m := range modes {
		if newSearch(s.problem, m).fits(lim.ram) {
			if lim.timeNs > 0 {
				return errTime
			}
			return errDisk
		}
	}
	return errMemory
}

// modes lists the ways of streaming that are worth a search: by the largest
// op that passes through the ring, which decides what the ring costs.
func (p *problem) modes() []mode {
	if p.opt.Strategy == StrategyStatic {
		return nil
	}
	sizes := p.ringSizes()
	moe := len(p.layers) > 0
	most := maxModes
	if !moe && len(p.items) <= smallModel { // the ring is much of the memory, and looks are cheap
		most *= 8
	}
	var modes []mode
	if moe {
		modes = append(modes, mode{slots: true})
	}
	first := 0 // index of the smallest size that only this mode allows
	for _, n := range thin(sizes, most) {
		// The largest op is in the ring twice, with the smallest beside it.
		modes = append(modes, mode{ringMax: n, ringLeast: 2*sizes[first] + sizes[0], slots: moe})
		first = slices.Index(sizes, n) + 1
	}
	return modes
}

// fewModes lists some of the modes, with the extremes, for those who only ask
// what is possible.
func (p *problem) fewModes() []mode {
	modes := append([]mode{{}}, p.modes()...)
	if len(p.items) <= smallModel || len(modes) < 4 {
		return modes
	}
	return []mode{modes[0], modes[1], modes[len(modes)-1]}
}

// ringSizes lists what one op may stream through the ring.
func (p *problem) ringSizes() []int64 {
	var sizes []int64
	for i := range p.items {
		it := &p.items[i]
		if p.layerOf[i] >= 0 || !it.streams {
			continue
		}
		for l := range it.levels {
			for r := range it.levels[l].records {
				sizes = append(sizes, it.streamed(pick{l, r}))
			}
		}
	}
	return sortedSet(sizes)
}

const (
	// maxModes bounds the ring sizes that one plan looks at.
	maxModes = 12
	// smallModel is how many items have eight times as many looked at.
	smallModel = 128
)

// thin keeps at most n of ascending values, the largest among them.
func thin(v []int64, n int) []int64 {
	if len(v) <= n {
		return v
	}
	kept := make([]int64, n)
	for i := range kept {
		kept[i] = v[(i+1)*len(v)/n-1]
	}
	return kept
}

// sortedSet sorts values and drops equal ones.
func sortedSet(v []int64) []int64 {
	slices.Sort(v)
	return slices.Compact(v)
}

// fitsDisk reports whether the smallest records of all items fit the disk.
func (p *problem) fitsDisk() bool {
	var least int64
	for i := range p.items {
		least += p.items[i].levels[0].disk()
	}
	return p.disk == 0 || least <= p.disk
}

// checkQuality refuses a result whose predicted KL is above the cap.
func (s *solver) checkQuality(r *result) error {
	if cap := s.budget.QualityLossCap; cap > 0 && s.table.Link.KL(r.use.kl) > cap {
		return errQuality
	}
	return nil
}

// leastKL spends the whole budget on KL. A cap on quality goes before a target
// of speed that nobody asked for: then it is the fastest plan, within steps of
// the search, that meets the cap.
func (s *solver) leastKL() (*result, error) {
	if !s.problem.fitsDisk() {
		return nil, errDisk
	}
	limit := s.timeLimit(s.staticMix())
	r, err := s.leastWithin(limit, nil)
	if err != nil || s.checkQuality(r) == nil {
		return r, err
	}
	if s.budget.TargetTokensPerSec > 0 {
		return nil, errQuality
	}
	r, err = s.leastWithin(0, nil)
	if err != nil || s.checkQuality(r) != nil {
		return nil, errQuality
	}
	low, high := limit, r.use.timeNs()
	for range qualitySteps {
		mid := math.Sqrt(low * high)
		if faster, err := s.leastWithin(mid, r); err == nil && s.checkQuality(faster) == nil {
			r, high = faster, min(mid, faster.use.timeNs())
		} else {
			low = mid
		}
	}
	return r, nil
}

// qualitySteps halve the logarithm of the time between too coarse and slow.
const qualitySteps = 6

// leastWithin is the plan of least KL that takes at most timeNs per token (0:
// any).
func (s *solver) leastWithin(timeNs float64, start *result) (*result, error) {
	lim := limits{ram: s.problem.free - s.poolReserve(), disk: s.problem.disk, timeNs: timeNs}
	r, err := s.optimum(lim, start, s.firstWork())
	if err != nil { // a pool is no reason to refuse
		lim.ram = s.problem.free
		r, err = s.optimum(lim, start, s.firstWork())
	}
	return r, err
}

// staticMix is the best solution without streaming, whatever time it takes;
// nil if none fits.
func (s *solver) staticMix() *result {
	search := newSearch(s.problem, mode{})
	for _, ram := range []int64{s.problem.free - s.poolReserve(), s.problem.free} {
		lim := limits{ram: ram, disk: s.problem.disk}
		if r := search.minimise(lim, 1); r != nil {
			return r
		}
	}
	return nil
}

// timeLimit is the longest that a token may take, in ns, so that the low end
// of the band of speed holds the target.
func (s *solver) timeLimit(static *result) float64 {
	switch {
	case s.budget.TargetTokensPerSec > 0:
		return 1e9 / s.budget.TargetTokensPerSec / speedBand
	case static != nil:
		return 2 * static.use.timeNs() / speedBand
	}
	u := s.fastest()
	return 2 * u.timeNs() / speedBand
}

// work is how many choices branch and bound may look at: in small models it is
// what closes the gap, in large ones there is hardly one.
func (s *solver) work() int {
	if len(s.problem.items) <= smallModel {
		return 5 * s.opt.Work
	}
	return s.opt.Work
}

// firstWork is what a first look may take.
func (s *solver) firstWork() int { return s.work() / 8 }

// refine solves a result again, with more work and with what the pool leaves.
func (s *solver) refine(r *result) (*result, rungs) {
	up := s.problem.ladders(r.sol, min(s.problem.free-r.use.ram(), s.poolReserve()))
	lim := r.lim
	lim.ram = s.problem.free - up.pool
	if better, err := s.optimum(lim, r, s.work()); err == nil {
		r = better
		up = s.problem.ladders(r.sol, s.problem.free-r.use.ram())
	}
	// No more than what the bound is for, even if the pool came out smaller.
	s.problem.settle(r.sol, min(r.lim.ram, s.problem.free-up.pool))
	r.use = s.problem.use(r.sol)
	return r, up
}

// meetCap finds the least RAM at which the default path without streaming is
// good enough, so that the rest is left to the pool.
func (s *solver) meetCap() (*result, error) {
	p := s.problem
	search := newSearch(p, mode{})
	good := func(ram int64) *result {
		lim := limits{ram: ram, disk: p.disk}
		r := search.minimise(lim, s.firstWork())
		if r == nil || s.checkQuality(r) != nil {
			return nil
		}
		return r
	}
	best := good(p.free)
	if best == nil {
		if !search.fits(p.free) {
			return nil, errMemory
		}
		return nil, errQuality
	}
	if ram := smallest(0, func(ram int64) bool { return ram >= p.free || good(ram) != nil }); ram > 0 && ram < p.free {
		if r := good(ram); r != nil {
			best = r
		}
	}
	return best, s.checkSpeed(best)
}
