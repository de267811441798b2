package plan

import (
	"container/heap"
	"math"

	"substrate/pkg/footprint"
)

// fill spends what the relaxation left over: moves of single items that lower
// KL, most KL per byte first, each that still fits. It reports whether it
// made any.
func (s *search) fill(sol *solution, lim limits) bool {
	f := newFiller(s, sol, lim)
	f.run(func() bool { return false })
	return f.made > 0
}

// move takes one item to another pick.
type move struct {
	item  int
	to    pick
	ratio float64 // nats per byte
}

// moves is a heap, largest ratio first; ties go to the earlier op, so that
// the order is one.
type moves []move

func (m moves) Len() int { return len(m) }
func (m moves) Less(i, j int) bool {
	return m[i].ratio > m[j].ratio || m[i].ratio == m[j].ratio && m[i].item < m[j].item
}
func (m moves) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *moves) Push(x any)   { *m = append(*m, x.(move)) }
func (m *moves) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

type filler struct {
	s     *search
	sol   *solution
	lim   limits
	use   usage
	weigh func(item int) float64 // multiplies an item's ratios; nil: 1
	moves moves
	made  int
	taken []classCount // per layer
}

// classCount counts the experts of a layer at each of their levels.
type classCount struct {
	experts []int // by number of the level
	classes int   // levels that any expert takes
}

func newFiller(s *search, sol *solution, lim limits) *filler {
	f := &filler{s: s, sol: sol, lim: lim, use: s.p.use(sol), taken: make([]classCount, len(s.p.layers))}
	for n := range s.p.layers {
		f.taken[n].experts = make([]int, s.p.layers[n].ids)
		for j, e := range s.p.layers[n].experts {
			f.taken[n].move(-1, s.p.layers[n].idOf[j][sol.picks[e].level])
		}
	}
	return f
}

// move takes an expert from one level, -1 for none, to another.
func (c *classCount) move(from, to int) {
	if from >= 0 {
		if c.experts[from]--; c.experts[from] == 0 {
			c.classes--
		}
	}
	if c.experts[to]++; c.experts[to] == 1 {
		c.classes++
	}
}

// after is how many classes there are once an expert moved.
func (c *classCount) after(from, to int) int {
	n := c.classes
	if c.experts[from] == 1 {
		n--
	}
	if c.experts[to] == 0 || from == to {
		n++
	}
	return n
}

// run makes moves until none fits or done says that it is enough.
func (f *filler) run(done func() bool) {
	for i := range f.s.p.items {
		f.push(i)
	}
	for len(f.moves) > 0 && !done() {
		m := heap.Pop(&f.moves).(move)
		if u, ok := f.fits(m.item, m.to); ok {
			f.make(m, u)
		}
		f.push(m.item)
	}
}

// make carries a move out.
func (f *filler) make(m move, u usage) {
	p := f.s.p
	if n := p.layerOf[m.item]; n >= 0 {
		j := p.place[m.item]
		ids := p.layers[n].idOf[j]
		f.taken[n].move(ids[f.sol.picks[m.item].level], ids[m.to.level])
	}
	f.use = u
	f.sol.picks[m.item] = m.to
	f.made++
}

// push queues the item's best move that fits now, if any.
func (f *filler) push(i int) {
	best := move{item: i}
	it := &f.s.p.items[i]
	from := f.sol.picks[i]
	least := f.use.kl * 1e-12
	n := f.s.p.layerOf[i]
	upgrades := n >= 0 && f.sol.banks[n].tier == 1 // what a level loses is not all
	room := f.lim.ram - f.use.ram() + it.levels[from.level].bytes - it.streamed(from)
	consider := func(to pick) {
		if to == from || !upgrades && it.levels[from.level].kl-it.levels[to.level].kl <= least {
			return
		}
		u, ok := f.fits(i, to)
		gain := f.use.kl - u.kl
		if !ok || gain <= least {
			return
		}
		ratio := math.Inf(1)
		if d := u.ram() - f.use.ram(); d > 0 {
			ratio = gain / float64(d)
			if f.weigh != nil {
				ratio *= f.weigh(i)
			}
		}
		if ratio > best.ratio {
			best.to, best.ratio = to, ratio
		}
	}
	if n < 0 {
		for _, c := range f.s.choices[i] {
			consider(c.pick)
		}
	} else {
		for l := range it.levels {
			if it.levels[l].bytes <= room {
				consider(it.whole(l))
			}
		}
	}
	if best.ratio > 0 {
		heap.Push(&f.moves, best)
	}
}

// fits returns the usage after a move and whether it holds the limits.
func (f *filler) fits(i int, to pick) (usage, bool) {
	u := f.use
	p := f.s.p
	from := f.sol.picks[i]
	if from == to {
		return u, false
	}
	f.s.work++
	n := p.layerOf[i]
	if n >= 0 {
		ids := p.layers[n].idOf[p.place[i]]
		if f.taken[n].after(ids[from.level], ids[to.level]) > p.layers[n].limit {
			return u, false
		}
	}
	p.itemUse(&u, i, from, -1)
	p.itemUse(&u, i, to, 1)
	if u.weights+u.kv > f.lim.ram-u.slots { // whatever becomes of ring and slots
		return u, false
	}
	switch {
	case n < 0 && (p.items[i].streamed(from) > 0 || p.items[i].streamed(to) > 0):
		f.sol.picks[i] = to
		u.ring = footprint.RingBytes(p.ringOps(f.sol))
		f.s.work += len(f.s.p.dense)
		f.sol.picks[i] = from
	case n >= 0 && f.sol.banks[n].slots > 0 && (f.sol.banks[n].tier == 1 || p.items[i].streamed(from) > 0):
		f.s.work += len(p.layers[n].experts)
		p.bankUse(&u, f.sol, n, -1)
		f.sol.picks[i] = to
		p.bankUse(&u, f.sol, n, 1)
		f.sol.picks[i] = from
	}
	return u, f.lim.hold(&u)
}
