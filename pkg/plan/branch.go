package plan

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// warmPrices is how many prices of other modes one starts from.
const warmPrices = 64

// closeEnough is the relative gap at which a solution counts as the best.
const closeEnough = 1e-6

// minimise looks for the solution of least KL of one mode.
func (s *search) minimise(lim limits, work int) *result {
	b := brancher{lim: lim, least: math.Inf(1), value: math.Inf(1)}
	b.add(s, 0, nil)
	b.run(work)
	return b.result()
}

// brancher minimises KL within limits over some modes.
//
// Pricing leaves a gap where single ops are large. Branch and bound closes
// it: the op on which the solutions that a relaxation mixes differ most may
// only take the smaller of its choices on one branch, the larger on the other.
// Always the node of the least bound is next, of whatever mode.
type brancher struct {
	lim   limits
	open  nodes
	roots []*node
	best  *solution
	use   usage
	mode  *node    // the root of best's mode
	value float64  // of best: KL and charge; +Inf while there is none
	least float64  // of the bounds of nodes that are done with
	tried []prices // for the roots that were priced
}

// node is a part of all solutions of a mode: one item is restricted beyond
// its parent's restrictions.
type node struct {
	*search
	charge  float64 // of the mode: what it costs beside KL
	parent  *node   // nil for all of the mode
	bound   float64 // charge included
	prices  prices  // of the bound; of a root
	warm    []prices
	found   *relaxation
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

// add adds a mode, with what prices that were good elsewhere say of it.
func (b *brancher) add(s *search, charge float64, warm []prices) *node {
	n := &node{search: s, charge: charge, warm: warm}
	n.bound, n.prices = s.boundAt(b.lim, warm)
	n.bound += charge
	b.roots = append(b.roots, n)
	heap.Push(&b.open, n)
	return n
}

// goal is the bound from which on a node cannot lead to anything better.
func (b *brancher) goal() float64 {
	if b.best == nil {
		return b.value
	}
	return b.value * (1 - closeEnough)
}

// run visits nodes until nothing better can be found, or so many choices were
// looked at; the pricing of whole modes, of which there are few, does not
// count. It goes on somewhat where nothing was found yet.
func (b *brancher) run(work int) {
	patience := 4 * len(b.roots)
	for len(b.open) > 0 && b.open[0].bound < b.goal() && (work > 0 || b.best == nil && patience > 0) {
		n := heap.Pop(&b.open).(*node)
		whole := n.parent == nil && n.found == nil
		before := n.work
		b.visit(n)
		if !whole {
			work -= n.work - before
			patience--
		}
	}
	if len(b.open) > 0 {
		b.least = min(b.least, b.open[0].bound)
	}
}

// result is the best that was found, nil if nothing.
func (b *brancher) result() *result {
	if b.best == nil {
		return nil
	}
	r := &result{sol: b.best, use: b.use, lim: b.lim, bound: min(b.least, b.value)}
	if b.mode != nil {
		r.search, r.charge = b.mode.search, b.mode.charge
	}
	return r
}

// visit prices a node, rounds what that finds, and branches.
func (b *brancher) visit(n *node) {
	n.apply()
	defer n.undo()
	if n.found == nil {
		b.price(n)
		if n.bound < b.goal() {
			heap.Push(&b.open, n) // perhaps another one is next now
			return
		}
	}
	if n.bound < b.goal() {
		b.offer(n)
	}
	item, small, large := -1, []choice(nil), []choice(nil)
	if n.bound < b.goal() {
		item, small, large = n.split(n.found)
	}
	if item < 0 {
		b.least = min(b.least, n.bound)
		return
	}
	for _, part := range [][]choice{small, large} {
		heap.Push(&b.open, &node{search: n.search, charge: n.charge, parent: n, bound: n.bound, warm: n.found.active, item: item, choices: part})
	}
}

// price prices a node that is applied.
func (b *brancher) price(n *node) {
	warm := n.warm
	if n.parent == nil {
		warm = b.tried[max(0, len(b.tried)-warmPrices):]
	}
	r := n.search.price(b.lim, prices{}, warm, b.goal()-n.charge)
	n.found = &r
	if v := r.bound + n.charge; v > n.bound {
		n.bound, n.prices = v, r.prices
	}
	if n.parent == nil {
		b.tried = append(b.tried, r.tried[min(len(warm), len(r.tried)):]...)
		heap.Init(&b.open)
	}
}

// offer rounds what was found for a node, and keeps the best.
func (b *brancher) offer(n *node) {
	n.work += 256 * len(n.p.items)
	sol := n.dive(n.found, b.lim)
	b.keep(n, sol)
	if sol == nil || len(n.p.items) <= smallModel {
		b.keep(n, n.round(n.found, b.lim))
	}
}

// keep keeps a solution of a node if it is the best so far.
func (b *brancher) keep(n *node, sol *solution) {
	if sol == nil {
		return
	}
	u := n.p.use(sol)
	if v := u.kl + n.charge; b.lim.hold(&u) && v < b.value {
		b.best, b.use, b.value, b.mode = sol, u, v, n.root()
	}
}

func (n *node) root() *node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// apply restricts the search's choices to the node's, undo takes that back.
func (n *node) apply() {
	if n.parent == nil {
		return
	}
	n.parent.apply()
	n.undone = n.search.choices[n.item]
	n.search.choices[n.item] = n.choices
}

func (n *node) undo() {
	for ; n.parent != nil; n = n.parent {
		n.search.choices[n.item] = n.undone
		n.undone = nil
	}
}

// split finds the dense item on which the solutions of a relaxation differ
// most, in what they pay and lose, and parts its choices between them; where
// they do not differ, the one with most choices left. -1 if there is none.
func (s *search) split(r *relaxation) (item int, small, large []choice) {
	item = -1
	most := 0.0
	for _, i := range s.p.dense {
		first := s.cheapest(i, &r.active[0])
		for k := 1; k < len(r.active); k++ {
			other := s.cheapest(i, &r.active[k])
			if first == other {
				continue
			}
			d := *other
			differ := math.Abs(d.kl-first.kl) + math.Abs(float64(d.ram-first.ram))*r.prices.ram +
				math.Abs(d.computeNs-first.computeNs)*r.prices.compute + math.Abs(d.ringNs-first.ringNs)*r.prices.ring
			if item < 0 || differ > most {
				item, most = i, differ
				small, large = part2(s.choices[i], first, other)
			}
		}
	}
	if item >= 0 {
		return item, small, large
	}
	for _, i := range s.p.dense {
		if n := len(s.choices[i]); n > 1 && (item < 0 || n > len(s.choices[item])) {
			item = i
		}
	}
	if item < 0 {
		return -1, nil, nil
	}
	cs := s.choices[item]
	small, large = part2(cs, &cs[0], &cs[len(cs)-1])
	return item, small, large
}

// part2 parts choices between two different ones: along RAM if these differ
// there, else along what they read, compute or lose.
func part2(choices []choice, a, b *choice) (small, large []choice) {
	along := []func(c *choice) float64{
		func(c *choice) float64 { return float64(c.ram) },
		func(c *choice) float64 { return c.ringNs + c.computeNs },
		func(c *choice) float64 { return c.kl },
	}
	by := along[0]
	for _, f := range along {
		if f(a) != f(b) {
			by = f
			break
		}
	}
	if by(a) == by(b) { // alike in all that counts here
		return choices[:1], choices[1:]
	}
	cut := min(by(a), by(b))
	for _, c := range choices {
		if cmp.Compare(by(&c), cut) <= 0 {
			small = append(small, c)
		} else {
			large = append(large, c)
		}
	}
	return slices.Clip(small), slices.Clip(large)
}
