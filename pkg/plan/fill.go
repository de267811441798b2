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
	f := filler{s: s, sol: sol, lim: lim, use: s.p.use(sol)}
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
}

// run makes moves until none fits or done says that it is enough.
func (f *filler) run(done func() bool) {
	for i := range f.s.p.items {
		f.push(i)
	}
	for len(f.moves) > 0 && !done() {
		m := heap.Pop(&f.moves).(move)
		if u, ok := f.fits(m.item, m.to); ok {
			f.use = u
			f.sol.picks[m.item] = m.to
			f.made++
		}
		f.push(m.item)
	}
}

// push queues the item's best move that fits now, if any.
func (f *filler) push(i int) {
	best := move{item: i}
	consider := func(to pick) {
		u, ok := f.fits(i, to)
		gain := f.use.kl - u.kl
		if !ok || gain <= f.use.kl*1e-12 {
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
	if f.s.p.layerOf[i] < 0 {
		for _, c := range f.s.choices[i] {
			consider(c.pick)
		}
	} else {
		for l := range f.s.p.items[i].levels {
			consider(f.s.p.items[i].whole(l))
		}
	}
	if best.ratio > 0 {
		heap.Push(&f.moves, best)
	}
}

// fits returns the usage after a move and whether it holds the limits.
func (f *filler) fits(i int, to pick) (usage, bool) {
	u := f.use
	from := f.sol.picks[i]
	if from == to {
		return u, false
	}
	p := f.s.p
	f.s.work += 4
	n := p.layerOf[i]
	p.itemUse(&u, i, from, -1)
	p.itemUse(&u, i, to, 1)
	switch {
	case n < 0 && (p.items[i].streamed(from) > 0 || p.items[i].streamed(to) > 0):
		f.sol.picks[i] = to
		u.ring = footprint.RingBytes(p.ringOps(f.sol))
		f.s.work += len(f.s.p.dense)
		f.sol.picks[i] = from
	case n >= 0 && f.sol.banks[n].slots > 0 && (f.sol.banks[n].tier == 1 || p.items[i].streamed(from) > 0):
		p.bankUse(&u, f.sol, n, -1)
		f.sol.picks[i] = to
		p.bankUse(&u, f.sol, n, 1)
		f.sol.picks[i] = from
	}
	return u, f.lim.hold(&u)
}
