package plan

import (
	"cmp"
	"math"
	"slices"

	"substrate/pkg/doc"
)

// poolReserve is what is kept for the pool before anything is spent: its
// share, or less where the K largest steps of any op take less.
func (s *solver) poolReserve() int64 {
	p := s.problem
	var deltas []int64
	for i := range p.items[:p.ops] {
		deltas = append(deltas, p.items[i].largestStep())
	}
	slices.SortFunc(deltas, func(a, b int64) int { return cmp.Compare(b, a) })
	var sum int64
	for _, d := range deltas[:min(len(deltas), cmp.Or(p.opt.MaxConcurrent, maxConcurrent))] {
		sum += d
	}
	return min(sum, int64(float64(p.free)*poolShare))
}

// largestStep is the largest delta of a useful step from any level.
func (it *item) largestStep() (largest int64) {
	for l := range it.levels {
		if up := it.next(l, math.MaxInt64); up >= 0 {
			largest = max(largest, delta(&it.levels[l], &it.levels[up]))
		}
	}
	return largest
}

// greedy is the original's rule: from the cheapest level of every op, promote
// the one with the best KL per byte, times one plus its sensitivity, until
// the budget is spent or, with the objective "cap", quality is good enough.
func (s *solver) greedy() (*result, error) {
	f, err := s.cheapest()
	if err != nil {
		return nil, err
	}
	var worst float64
	for i := range s.problem.items {
		worst = max(worst, s.problem.items[i].levels[0].kl)
	}
	f.weigh = func(item int) float64 {
		if worst == 0 {
			return 1
		}
		return 1 + s.problem.items[item].levels[0].kl/worst
	}
	f.run(func() bool { return s.enough(&f.use) })
	r := resultOf(f.sol, s.problem.use(f.sol))
	return r, s.checkSpeed(r)
}

// cheapest is a filler that starts with every op resident at its cheapest
// level.
func (s *solver) cheapest() (*filler, error) {
	p := s.problem
	lim := limits{ram: s.controlRAM(), disk: p.disk}
	sol := p.newSolution()
	for i := range p.items {
		sol.picks[i] = p.items[i].whole(0)
	}
	u := p.use(sol)
	if u.ram() > lim.ram {
		lim.ram = p.free // a pool is no reason to refuse
	}
	if u.ram() > lim.ram {
		return nil, errMemory
	}
	if !lim.holdDisk(&u) {
		return nil, errDisk
	}
	return newFiller(newSearch(p, mode{}), sol, lim), nil
}

// enough reports whether the quality cap ends the spending.
func (s *solver) enough(u *usage) bool {
	return s.opt.Objective == doc.ObjectiveCap && s.budget.QualityLossCap > 0 && s.table.Link.KL(u.kl) <= s.budget.QualityLossCap
}

// checkSpeed refuses a result that is too slow or not good enough.
func (s *solver) checkSpeed(r *result) error {
	if !s.fastEnough(&r.use) {
		return errTime
	}
	return s.checkQuality(r)
}

// uniformPoint is one encoding for all ops.
type uniformPoint struct {
	encoding string
	bytes    int64
	kl       float64 // sum
	sol      *solution
}

// uniformPoints lists the single encodings that every op has, ascending by
// bytes, each with less KL than the ones before it. Ops that every encoding
// stores alike take the level they have.
func (p *problem) uniformPoints() []uniformPoint {
	var points []uniformPoint
	for _, e := range p.table.Encodings {
		if e.Residual {
			continue
		}
		u := uniformPoint{encoding: e.ID, sol: p.newSolution()}
		fits := true
		for i := range p.items {
			it := &p.items[i]
			l := slices.IndexFunc(it.levels, func(l level) bool { return l.id == e.ID })
			switch {
			case it.op == nil: // the KV cache is at its best
				l = len(it.levels) - 1
			case l < 0 && (len(it.levels) == 1 || it.pinned):
				l = 0
			}
			if l < 0 {
				fits = false
				break
			}
			u.sol.picks[i] = it.whole(l)
			u.bytes += it.levels[l].bytes
			u.kl += it.levels[l].kl
		}
		if fits {
			points = append(points, u)
		}
	}
	slices.SortStableFunc(points, func(a, b uniformPoint) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.kl, b.kl))
	})
	best := math.Inf(1)
	return slices.DeleteFunc(points, func(u uniformPoint) bool {
		if u.kl >= best {
			return true
		}
		best = u.kl
		return false
	})
}

// uniform is the strategy of one encoding for all ops.
func (s *solver) uniform() (*result, error) {
	p := s.problem
	points := p.uniformPoints()
	if len(points) == 0 {
		return nil, &TableError{Reason: "no encoding that every op was measured at: uniform has nothing to choose from"}
	}
	for _, u := range slices.Backward(points) {
		if u.bytes <= p.free && (p.disk == 0 || u.bytes <= p.disk) {
			r := resultOf(u.sol, p.use(u.sol))
			return r, s.checkSpeed(r)
		}
	}
	return nil, errMemory
}

// uniformControl is the best single encoding at the bytes that a plan spends,
// its KL interpolated between the encodings around, linear in the logarithm.
func (s *solver) uniformControl(bytes int64) *doc.UniformControl {
	points := s.problem.uniformPoints()
	i := slices.IndexFunc(points, func(u uniformPoint) bool { return u.bytes > bytes })
	if i < 0 {
		i = len(points)
	}
	if i == 0 {
		return nil // none fits
	}
	below := points[i-1]
	kl := below.kl
	if i < len(points) && kl > 0 && points[i].kl > 0 {
		f := float64(bytes-below.bytes) / float64(points[i].bytes-below.bytes)
		kl = math.Exp(math.Log(kl) + f*(math.Log(points[i].kl)-math.Log(kl)))
	}
	return &doc.UniformControl{Encoding: below.encoding, KL: s.table.Link.KL(kl), Bytes: bytes}
}
