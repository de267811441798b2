package plan

import (
	"math"

	"substrate/pkg/doc"
)

// increments writes down the steps of the ops that are wholly resident in one
// record: those along the lower convex hull of their levels of one record, and
// the default. Experts keep to the levels that their layer takes.
func (a *assembler) increments() []doc.Increments {
	p := a.problem
	taken := make([]map[string]bool, len(p.layers)) // levels of each layer
	for n := range p.layers {
		taken[n] = map[string]bool{}
		for _, e := range p.layers[n].experts {
			taken[n][p.items[e].levels[a.sol.picks[e].level].id] = true
		}
	}
	var list []doc.Increments
	for i := range p.ops {
		it, k := &p.items[i], a.sol.picks[i]
		if it.streamed(k) > 0 || len(it.levels[k.level].records) != 1 {
			continue
		}
		n := p.layerOf[i]
		if n >= 0 && a.sol.banks[n].tier == 1 && a.sol.banks[n].slots > 0 {
			continue // its upgrades go by its default
		}
		steps := it.steps(k.level, func(l *level) bool { return n < 0 || taken[n][l.id] })
		if len(steps) < 2 {
			continue
		}
		s := doc.Increments{Op: it.op.ID}
		for _, l := range steps {
			s.Levels = append(s.Levels, it.levels[l].id)
			s.Bytes = append(s.Bytes, it.levels[l].bytes)
			s.PicoNats = append(s.PicoNats, picoNats(math.Round, it.levels[l].kl))
		}
		list = append(list, s)
	}
	return list
}

// steps lists levels of one record, ascending by bytes and falling in KL: the
// lower convex hull of those that are allowed, and level at.
func (it *item) steps(at int, allowed func(*level) bool) []int {
	var hull []int
	kl := func(l int) float64 { return float64(picoNats(math.Round, it.levels[l].kl)) }
	for l := range it.levels {
		v := &it.levels[l]
		if l != at && (len(v.records) != 1 || !allowed(v)) {
			continue
		}
		for len(hull) > 0 {
			last := hull[len(hull)-1]
			if l == at && kl(last) <= kl(l) || it.levels[last].bytes == v.bytes {
				if last == at {
					break
				}
				hull = hull[:len(hull)-1] // the default stays
				continue
			}
			if len(hull) < 2 || last == at || l == at {
				break
			}
			before := hull[len(hull)-2]
			rise := func(a, b int) float64 {
				return (kl(a) - kl(b)) / float64(it.levels[b].bytes-it.levels[a].bytes)
			}
			if rise(before, last) > rise(last, l) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		if n := len(hull); n > 0 && (kl(hull[n-1]) <= kl(l) || it.levels[hull[n-1]].bytes >= v.bytes) {
			continue
		}
		hull = append(hull, l)
	}
	return hull
}
