package plan

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"substrate/pkg/doc"
)

// Controls spend the budget in ways that should lose to the optimal plan, and
// say by how much: a table whose numbers mean nothing does no better than
// chance.

// ranked promotes items from their cheapest levels, one level at a time, the
// one of the least key next, while anything fits.
func (s *solver) ranked(key func(gain float64, bytes int64) float64) (*result, error) {
	f, err := s.cheapest()
	if err != nil {
		return nil, err
	}
	push := func(i, from int) {
		it := &s.problem.items[i]
		at := &it.levels[f.sol.picks[i].level]
		for l := from; l < len(it.levels); l++ {
			to := &it.levels[l]
			if to.kl < at.kl && to.bytes > at.bytes && len(to.encodings) <= 1 {
				heap.Push(&f.moves, move{item: i, to: it.whole(l), ratio: -key(at.kl-to.kl, to.bytes-at.bytes)})
				return
			}
		}
	}
	for i := range s.problem.items {
		push(i, 1)
	}
	for len(f.moves) > 0 && !s.enough(&f.use) {
		m := heap.Pop(&f.moves).(move)
		if u, ok := f.fits(m.item, m.to); ok {
			f.make(m, u)
		}
		push(m.item, m.to.level+1) // what does not fit now, perhaps a class too many, never does
	}
	r := resultOf(f.sol, s.problem.use(f.sol))
	return r, s.checkSpeed(r)
}

// random promotes in a random order that the seed decides.
func (s *solver) random() (*result, error) {
	r := rand.New(rand.NewPCG(s.opt.Seed, 0x5e1ec7))
	return s.ranked(func(float64, int64) float64 { return r.Float64() })
}

// inverted promotes first what gains least KL per byte.
func (s *solver) inverted() (*result, error) {
	return s.ranked(func(gain float64, bytes int64) float64 { return gain / float64(bytes) })
}

// layersOnly is the best solution in which all ops of a block take one level;
// ops outside the blocks take their own.
func (s *solver) layersOnly() (*result, error) {
	p := s.problem
	var groups [][]int
	index := map[int]int{}
	for i := range p.items {
		op := p.items[i].op
		if op == nil || op.Layer < 0 {
			groups = append(groups, []int{i})
			continue
		}
		n, ok := index[op.Layer]
		if !ok {
			n = len(groups)
			index[op.Layer] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	whole := problem{table: p.table, speeds: p.speeds, opt: p.opt, free: p.free, disk: p.disk, dispatchNs: p.dispatchNs, worstKL: p.worstKL}
	for n, group := range groups {
		it, err := p.merged(group)
		if err != nil {
			return nil, err
		}
		whole.items = append(whole.items, it)
		whole.layerOf = append(whole.layerOf, -1)
		whole.dense = append(whole.dense, n)
	}
	best := newSearch(&whole, mode{}).minimise(limits{ram: s.controlRAM(), disk: p.disk}, s.opt.Work)
	if best == nil {
		return nil, errMemory
	}
	sol := p.newSolution()
	for n, group := range groups {
		id := whole.items[n].levels[best.sol.picks[n].level].id
		for _, i := range group {
			sol.picks[i] = p.items[i].whole(p.items[i].at(id))
		}
	}
	r := resultOf(sol, p.use(sol))
	return r, s.checkSpeed(r)
}

// at is the index of a level, or of the only one there is; -1 if there is none.
func (it *item) at(id string) int {
	if len(it.levels) == 1 {
		return 0
	}
	return slices.IndexFunc(it.levels, func(l level) bool { return l.id == id })
}

// merged is several items as one, at the levels that all of them have.
func (p *problem) merged(group []int) (item, error) {
	first := &p.items[group[0]]
	if len(group) == 1 {
		it := *first
		it.streams = false
		return it, nil
	}
	it := item{op: first.op, share: 1}
	ids := slices.MaxFunc(group, func(a, b int) int { return cmp.Compare(len(p.items[a].levels), len(p.items[b].levels)) })
	for _, l := range p.items[ids].levels {
		sum := level{id: l.id, encodings: l.encodings, source: l.source}
		for _, i := range group {
			m := p.items[i].at(l.id)
			if m < 0 {
				sum.bytes = -1
				break
			}
			part := &p.items[i].levels[m]
			sum.bytes += part.bytes
			sum.kl += part.kl
			sum.klError = math.Hypot(sum.klError, part.klError)
			sum.computeNs += p.items[i].share * part.computeNs
		}
		if sum.bytes >= 0 {
			sum.records = []int64{sum.bytes}
			it.levels = append(it.levels, sum)
		}
	}
	if len(it.levels) == 0 {
		return it, &TableError{Op: first.op.ID, Reason: "has no level that all ops of its block have: " + StrategyLayersOnly + " has nothing to choose from"}
	}
	return it, nil
}

// controlRAM is what a control may spend: as much as the optimal plan, which
// reserves a pool; with the objective "cap" all, of which it takes little.
func (s *solver) controlRAM() int64 {
	if s.opt.Objective == doc.ObjectiveKL {
		return s.problem.free - s.poolReserve()
	}
	return s.problem.free
}
