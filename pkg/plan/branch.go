package plan

import (
	"container/heap"
	"math"
	"slices"
)

// closeEnough is the relative gap at which a solution counts as the best.
const closeEnough = 1e-6

// solve minimises KL within the limits over one mode; nil if it finds nothing.
// Only plans of less KL than ceiling are of interest, and not much more than
// so many choices are looked at.
//
// Pricing leaves a gap where single ops are large. Branch and bound closes
// it: the op on which the two solutions next to the limit differ most may
// only take the smaller of its choices on one branch, the larger on the other.
func (s *search) solve(lim limits, ceiling float64, work int) *result {
	work += s.work
	b := brancher{search: s, lim: lim, ceiling: ceiling, least: math.Inf(1)}
	b.visit(&node{bound: math.Inf(-1)})
	for len(b.open) > 0 && b.open[0].bound < b.goal() && s.work < work {
		b.visit(heap.Pop(&b.open).(*node))
	}
	if len(b.open) > 0 && b.open[0].bound < b.least {
		b.least, b.at = b.open[0].bound, b.open[0].prices
	}
	if b.best == nil {
		return nil
	}
	// Nodes that were cut off had a bound of at least what was found.
	b.least = min(b.least, b.use.kl)
	r := &result{search: s, lim: lim}
	r.sol, r.use, r.bound, r.prices = b.best, b.use, b.least, b.at
	return r
}

// brancher is the state of one solve.
type brancher struct {
	*search
	lim     limits
	ceiling float64
	open    nodes
	best    *solution
	use     usage
	least   float64 // of the bounds of nodes that are done with, but not cut off
	at      prices
}

// node is a part of all solutions: one item is restricted beyond its parent's
// restrictions.
type node struct {
	parent  *node
	bound   float64
	prices  prices
	item    int
	choices []choice
	undone  []choice // while the node is applied: what the item could take before
}

// nodes is a heap, least bound first.
type nodes []*node

func (h nodes) Len() int           { return len(h) }
func (h nodes) Less(i, j int) bool { return h[i].bound < h[j].bound }
func (h nodes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *nodes) Push(x any)        { *h = append(*h, x.(*node)) }
func (h *nodes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// goal is the bound from which on a node cannot lead to anything better.
func (b *brancher) goal() float64 {
	if b.best == nil {
		return b.ceiling
	}
	return min(b.ceiling, b.use.kl*(1-closeEnough))
}

// visit solves the relaxation of a node and branches.
func (b *brancher) visit(n *node) {
	b.apply(n)
	r := b.withinDisk(b.lim)
	var small, large []choice
	item := -1
	if r.sol != nil && r.over != nil {
		item, small, large = b.split(r.sol, r.over)
	}
	b.undo(n)
	if r.bound < n.bound { // the parent's holds here too
		r.bound, r.prices = n.bound, n.prices
	}
	if r.sol != nil {
		b.offer(r.sol, r.over)
	}
	switch {
	case r.bound >= b.goal():
	case item >= 0:
		for _, part := range [][]choice{small, large} {
			heap.Push(&b.open, &node{parent: n, bound: r.bound, prices: r.prices, item: item, choices: part})
		}
		return
	case r.sol != nil && r.over == nil:
		r.bound = max(r.bound, r.use.kl) // the limits do not bind: this is the best of the node
	}
	if r.bound < b.least {
		b.least, b.at = r.bound, r.prices
	}
}

// apply restricts the search's choices to the node's, undo takes that back.
func (b *brancher) apply(n *node) {
	if n.parent == nil {
		return
	}
	b.apply(n.parent)
	n.undone = b.choices[n.item]
	b.choices[n.item] = n.choices
}

func (b *brancher) undo(n *node) {
	for ; n.parent != nil; n = n.parent {
		b.choices[n.item] = n.undone
		n.undone = nil
	}
}

// split finds the dense item on which two solutions differ most, in RAM and
// time together, and parts its choices between the two. -1 if there is none.
func (b *brancher) split(fits, over *solution) (item int, small, large []choice) {
	item = -1
	var most float64
	for _, i := range b.p.dense {
		if fits.picks[i] == over.picks[i] {
			continue
		}
		f, o := b.find(i, fits.picks[i]), b.find(i, over.picks[i])
		differ := math.Abs(float64(o.ram-f.ram)) / float64(b.lim.ram)
		if b.lim.timeNs > 0 {
			differ += math.Abs(o.computeNs+o.streamedNs-f.computeNs-f.streamedNs) / b.lim.timeNs
		}
		if item < 0 || differ > most {
			item, most = i, differ
		}
	}
	if item < 0 {
		return item, nil, nil
	}
	// Along RAM if they differ there, else along what they read and compute.
	f, o := b.find(item, fits.picks[item]), b.find(item, over.picks[item])
	along := func(c *choice) float64 { return float64(c.ram) }
	if f.ram == o.ram {
		along = func(c *choice) float64 { return c.streamedNs + c.computeNs }
	}
	if along(f) == along(o) {
		along = func(c *choice) float64 { return c.kl }
	}
	cut := min(along(f), along(o))
	for _, c := range b.choices[item] {
		if along(&c) <= cut {
			small = append(small, c)
		} else {
			large = append(large, c)
		}
	}
	if len(small) == 0 || len(large) == 0 {
		return -1, nil, nil
	}
	return item, small, large
}

func (s *search) find(i int, k pick) *choice {
	j := slices.IndexFunc(s.choices[i], func(c choice) bool { return c.pick == k })
	return &s.choices[i][j]
}

// offer improves a solution and keeps it if it is the best so far.
func (b *brancher) offer(sol, over *solution) {
	sol = sol.clone()
	if over != nil {
		b.p.approach(sol, over, b.lim)
	}
	b.fill(sol, b.lim)
	if u := b.p.use(sol); b.lim.hold(&u) && (b.best == nil || u.kl < b.use.kl) {
		b.best, b.use = sol, u
	}
}
