package plan

import (
	"cmp"
	"math"
	"slices"
)

// A backend computes experts of one layer that have the same precision in one
// gathered call, so the experts of a layer take few different levels: a set
// of classes. Within a set every expert takes what is cheapest for itself.

// maxClasses bounds the levels of a layer that sets are made of, so that
// their number stays in the hundreds whatever the limit of a set is.
const maxClasses = 12

// classes are the levels that a layer's experts may take: those of the table
// but for ones that another beats for every expert. All experts of a layer
// have the same shape, so a level has the same bytes for each.
type classes struct {
	bytes []int64     // of an expert at each class, ascending
	ns    []float64   // compute of one run
	level [][]int     // per class and expert: index of the item's level, -1 if it was not measured
	kl    [][]float64 // per class and expert; +Inf if it was not measured
}

func buildClasses(items []item, experts []int) classes {
	type candidate struct {
		id    string
		bytes int64
		ns    float64
		level []int
		kl    []float64
		sum   float64
	}
	var list []candidate
	index := map[string]int{}
	for j, e := range experts {
		for m := range items[e].levels {
			l := &items[e].levels[m]
			n, ok := index[l.id]
			if !ok {
				n = len(list)
				index[l.id] = n
				c := candidate{id: l.id, bytes: l.bytes, ns: l.computeNs, level: make([]int, len(experts)), kl: make([]float64, len(experts))}
				for k := range experts {
					c.level[k], c.kl[k] = -1, math.Inf(1)
				}
				list = append(list, c)
			}
			list[n].level[j], list[n].kl[j] = m, l.kl
		}
	}
	for i := range list {
		for _, kl := range list[i].kl {
			list[i].sum += kl
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.sum, b.sum), cmp.Compare(a.ns, b.ns), cmp.Compare(a.id, b.id))
	})
	beats := func(a, b *candidate) bool {
		if a.bytes > b.bytes || a.ns > b.ns {
			return false
		}
		for j := range a.kl {
			if a.kl[j] > b.kl[j] {
				return false
			}
		}
		return true
	}
	var kept []candidate
	for i := range list {
		if !slices.ContainsFunc(kept, func(a candidate) bool { return beats(&a, &list[i]) }) {
			kept = append(kept, list[i])
		}
	}
	var c classes
	for _, i := range thinIndex(len(kept), maxClasses) {
		c.bytes = append(c.bytes, kept[i].bytes)
		c.ns = append(c.ns, kept[i].ns)
		c.level = append(c.level, kept[i].level)
		c.kl = append(c.kl, kept[i].kl)
	}
	return c
}

// thinIndex lists at most most of the indices below n, the first and the last
// among them.
func thinIndex(n, most int) []int {
	var kept []int
	for i := range min(n, most) {
		if n <= most {
			kept = append(kept, i)
		} else {
			kept = append(kept, i*(n-1)/(most-1))
		}
	}
	return kept
}

// classSet is a set of classes, a bit for each.
type classSet uint32

func (s classSet) has(c int) bool { return s>>c&1 == 1 }

// lowest is the class of the fewest bytes.
func (s classSet) lowest() int {
	c := 0
	for !s.has(c) {
		c++
	}
	return c
}

// sumOfSets calls visit with the sum over experts of the least cost within
// each set: all sets of limit classes and, for those who want the cheapest
// class of a set to be a certain one, all that have fewer because there are
// no more above their cheapest. cost has a row for each class; rows is
// scratch of limit rows.
func sumOfSets(cost, rows [][]float64, limit int, visit func(set classSet, sum float64)) {
	var extend func(set classSet, from, taken int)
	extend = func(set classSet, from, taken int) {
		least := rows[taken-1]
		if taken == limit || from == len(cost) {
			sum := 0.0
			for _, v := range least {
				sum += v
			}
			visit(set, sum)
			return
		}
		for c := from; c < len(cost); c++ {
			if taken+1 == limit {
				visit(set|1<<c, sumOfLeast(least, cost[c]))
				continue
			}
			next := rows[taken]
			for j, v := range cost[c] {
				if w := least[j]; w < v {
					v = w
				}
				next[j] = v
			}
			extend(set|1<<c, c+1, taken+1)
		}
	}
	for c := range cost {
		copy(rows[0], cost[c])
		extend(1<<c, c+1, 1)
	}
}

func sumOfLeast(a, b []float64) float64 {
	b = b[:len(a)]
	var sum float64
	for j, v := range a {
		if w := b[j]; w < v {
			v = w
		}
		sum += v
	}
	return sum
}

// cover reports whether some set of limit classes has a level of every expert.
func (c *classes) cover(limit int) bool {
	covers := false
	if len(c.kl) == 0 {
		return false
	}
	rows := make([][]float64, limit)
	for i := range rows {
		rows[i] = make([]float64, len(c.kl[0]))
	}
	sumOfSets(c.kl, rows, limit, func(_ classSet, sum float64) { covers = covers || !math.IsInf(sum, 1) })
	return covers
}
