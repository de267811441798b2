package plan

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"substrate/pkg/doc"
)

// ladder is an item's levels by tier: its default, then what it may escalate
// to.
type ladder []int

// maxConcurrent is how many ops may be escalated at once unless the user says.
const maxConcurrent = 6

// ladders builds the tiers of all items so that the K largest tier 1 deltas
// fit pool bytes, and returns what they take. Unless the user says K, it is
// the largest up to maxConcurrent with which at least half of the ops that
// could escalate can; if none, the one with which most can.
func (p *problem) ladders(s *solution, pool int64) (best rungs) {
	if p.opt.MaxConcurrent > 0 {
		best = p.laddersOf(s, pool, p.opt.MaxConcurrent)
	} else {
		could := p.laddersOf(s, math.MaxInt64, maxConcurrent).escalating
		for k := maxConcurrent; k >= 1 && 2*best.escalating < max(1, could); k-- {
			if r := p.laddersOf(s, pool, k); r.escalating > best.escalating || best.ladders == nil {
				best = r
			}
		}
	}
	for i := range best.ladders {
		p.ceiling(&best.ladders[i], &p.items[i], best.pool)
	}
	return best
}

// rungs are the ladders of all items.
type rungs struct {
	ladders    []ladder
	pool       int64 // bytes that the K largest tier 1 deltas take
	k          int
	escalating int // ops that have a tier 1
}

// laddersOf builds tiers 0 and 1. Where K of them do not fit the pool, the
// largest deltas go: those ops get a smaller step, or none.
func (p *problem) laddersOf(s *solution, pool int64, k int) rungs {
	limit := pool
	for {
		r := rungs{ladders: make([]ladder, len(p.items))}
		var deltas []int64
		for i := range p.items {
			r.ladders[i] = p.climb(s, i, limit)
			if d := p.items[i].delta(r.ladders[i], 1); d > 0 {
				deltas = append(deltas, d)
			}
		}
		r.escalating = len(deltas)
		r.k = min(k, len(deltas))
		slices.SortFunc(deltas, func(a, b int64) int { return cmp.Compare(b, a) })
		for _, d := range deltas[:r.k] {
			r.pool += d
		}
		if r.pool <= pool {
			return r
		}
		limit = deltas[0] - 1
	}
}

// climb returns an item's default and, where its delta is at most limit, its
// tier 1.
func (p *problem) climb(s *solution, i int, limit int64) ladder {
	l := ladder{s.picks[i].level}
	if p.items[i].op == nil {
		return l // the KV cache stays as it is
	}
	if n := p.layerOf[i]; n >= 0 && s.banks[n].slots > 0 && s.banks[n].tier == 1 {
		limit = min(limit, s.banks[n].bytes) // upgrades have one size of slot
	}
	if up := p.items[i].next(l[0], limit); up >= 0 {
		l = append(l, up)
	}
	return l
}

// ceiling adds tier 2 where there is a level above tier 1 that fits the pool
// by itself.
func (p *problem) ceiling(l *ladder, it *item, pool int64) {
	if len(*l) < 2 {
		return
	}
	from, below := (*l)[0], (*l)[1]
	best, ratio := -1, 0.0
	for to := range it.levels {
		v := &it.levels[to]
		gain := it.levels[below].kl - v.kl
		d := delta(&it.levels[from], v)
		if gain <= 0 || d > pool || d < it.delta(*l, 1) || len(v.encodings) > 1 && !v.extends(&it.levels[from]) {
			continue
		}
		if r := gain / float64(d); r > ratio {
			best, ratio = to, r
		}
	}
	if best >= 0 {
		*l = append(*l, best)
	}
}

// delta is what tier t of a ladder adds to tier 0, in bytes; 0 if there is no
// such tier.
func (it *item) delta(l ladder, t int) int64 {
	if t == 0 || t >= len(l) {
		return 0
	}
	return delta(&it.levels[l[0]], &it.levels[l[t]])
}

// trimDisk takes away tiers, the largest records first, until all records fit
// the disk.
func (p *problem) trimDisk(ladders []ladder) error {
	if p.disk == 0 {
		return nil
	}
	var sum int64
	type top struct {
		item, tier int
		bytes      int64
	}
	var tops []top
	for i, l := range ladders {
		it := &p.items[i]
		sum += it.levels[l[0]].disk()
		for t := 1; t < len(l); t++ {
			d := it.delta(l, t)
			sum += d
			tops = append(tops, top{i, t, d})
		}
	}
	// Tier 2 goes before tier 1 of any op: it is used least.
	slices.SortStableFunc(tops, func(a, b top) int {
		return cmp.Or(cmp.Compare(b.tier, a.tier), cmp.Compare(b.bytes, a.bytes))
	})
	for _, t := range tops {
		if sum <= p.disk {
			return nil
		}
		ladders[t.item] = ladders[t.item][:t.tier]
		sum -= t.bytes
	}
	if sum > p.disk {
		return errDisk
	}
	return nil
}

// recordNames gives the ids of the records of every tier, as the original
// names them: the default's first record is skeleton; residuals are counted
// as they come up, so that two that add to the same record differ; a
// replacement is level_1 or level_2 by its tier.
func (it *item) recordNames(l ladder) [][]string {
	names := make([][]string, len(l))
	byChain := map[string]string{}
	residuals := 0
	for t := range l {
		to := &it.levels[l[t]]
		replaces := t > 0 && !to.extends(&it.levels[l[0]])
		for j := range to.encodings {
			chain := doc.LevelID(to.encodings[:j+1])
			name, ok := byChain[chain]
			switch {
			case ok:
			case j > 0:
				residuals++
				name = it.op.ID + ".residual_" + strconv.Itoa(residuals)
			case replaces:
				name = it.op.ID + ".level_" + strconv.Itoa(t)
			default:
				name = it.op.ID + ".skeleton"
			}
			byChain[chain] = name
			names[t] = append(names[t], name)
		}
	}
	return names
}

// fallback is what a tier does in the mode "fastest" when its records come
// too late.
func (p *problem) fallback(s *solution, i, tier int, sharedExpert bool) string {
	k := s.picks[i]
	resident := p.items[i].streamed(pick{k.level, k.resident}) == 0
	switch {
	case tier > 0 && resident, tier == 0 && k.resident > 0 && !resident:
		return doc.FallbackSkeletonOnly
	case p.layerOf[i] >= 0 && sharedExpert:
		return doc.FallbackSharedExpert
	}
	return doc.FallbackStall
}
