package plan

import (
	"cmp"
	"math"
	"slices"

	"substrate/pkg/doc"
)

// Curve solves one table for many budgets, ascending by their bytes of RAM,
// and tells of each what it makes of the model and what changes from the one
// before. It calls yield with each point as soon as its knee is known, and
// stops at its error.
func Curve(t *doc.Table, m *doc.Machine, b doc.Budget, o Options, ram []int64, yield func(*doc.CurvePoint) error) error {
	if len(ram) == 0 {
		return &OptionError{"budgets", "none"}
	}
	ram = slices.Clone(ram)
	slices.Sort(ram)
	b.MaxRAMBytes = ram[0]
	s, err := newSolver(t, m, b, o)
	if err != nil {
		return err
	}
	var c curve
	for _, n := range slices.Compact(ram) {
		b := s.budget
		b.MaxRAMBytes = n
		again, err := s.with(b)
		if err != nil {
			return err
		}
		again.start = c.start()
		if err := c.add(again, yield); err != nil {
			return err
		}
	}
	return c.end(yield)
}

// curve holds the points whose knee is not known yet, and the one before.
type curve struct {
	points  []*doc.CurvePoint // the last ones, two at most
	results []*result
}

// start is the last result, a start for the next one.
func (c *curve) start() *result {
	if len(c.results) == 0 {
		return nil
	}
	return c.results[len(c.results)-1]
}

// add solves a budget and yields the point before.
func (c *curve) add(s *solver, yield func(*doc.CurvePoint) error) error {
	p := &doc.CurvePoint{Format: doc.FormatCurve, Synthetic: s.table.Synthetic || s.table.Profile.Synthetic, MaxRAMBytes: s.budget.MaxRAMBytes, Changes: []doc.CurveChange{}}
	r, err := s.decide()
	switch {
	case err == nil:
	case slices.Contains([]error{errMemory, errTime, errQuality, errDisk}, err):
		p.Infeasible = err.Error()
		return yield(p) // smaller budgets come first
	default:
		return err
	}
	q := s.predict(&r.use, nil)
	p.KL, p.TokensPerSec, p.ReadBytesPerToken, p.BitsPerWeight = q.KL, q.TokensPerSec, q.ReadBytesPerToken, q.BitsPerWeight
	if u := s.uniformControl(r.use.ram()); u != nil {
		p.UniformKL = &u.KL
	}
	if r.search != nil && r.use.kl > 0 {
		p.RelativeGap = max(0, 1-(r.bound-r.charge)/r.use.kl)
	}
	p.KVCacheType = s.opt.KVCacheType
	if n := s.problem.ops; n < len(s.problem.items) {
		p.KVCacheType = s.problem.items[n].levels[r.sol.picks[n].level].id
	}
	p.Streams = r.use.slots+r.use.ring > 0
	if before := c.start(); before != nil {
		p.Changes = s.problem.changes(before.sol, r.sol)
	}
	c.points, c.results = append(c.points, p), append(c.results, r)
	if n := len(c.points); n >= 3 {
		c.points[n-2].Knee = knee(c.points[n-3], c.points[n-2], c.points[n-1], max(s.table.Floor, 1e-9))
	}
	if len(c.points) >= 2 {
		if err := yield(c.points[len(c.points)-2]); err != nil {
			return err
		}
	}
	if len(c.points) == 3 {
		c.points, c.results = c.points[1:], c.results[1:]
	}
	return nil
}

// end yields the last point.
func (c *curve) end(yield func(*doc.CurvePoint) error) error {
	if len(c.points) == 0 {
		return nil
	}
	return yield(c.points[len(c.points)-1])
}

// kneeFactor is how much steeper the logarithm of KL must fall before a knee
// than behind it: with more bits everywhere it falls evenly.
const kneeFactor = 1.5

// knee reports whether b is one; floor is KL that means nothing.
func knee(a, b, c *doc.CurvePoint, floor float64) bool {
	slope := func(x, y *doc.CurvePoint) float64 {
		return math.Log((x.KL+floor)/(y.KL+floor)) / float64(y.MaxRAMBytes-x.MaxRAMBytes)
	}
	before, behind := slope(a, b), slope(b, c)
	return before > 0 && before >= kneeFactor*behind
}

// changes counts what becomes of the items from one solution to another.
func (p *problem) changes(from, to *solution) []doc.CurveChange {
	counts := map[doc.CurveChange]int{}
	for i := range p.items {
		it := &p.items[i]
		a, b := it.describe(from.picks[i]), it.describe(to.picks[i])
		if a == b {
			continue
		}
		c := doc.CurveChange{From: a, To: b}
		if it.op != nil {
			c.Kind = it.op.Kind
		}
		counts[c]++
	}
	list := make([]doc.CurveChange, 0, len(counts))
	for c, n := range counts {
		c.Ops = n
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b doc.CurveChange) int {
		return cmp.Or(cmp.Compare(b.Ops, a.Ops), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return list
}

// describe names how an item is held.
func (it *item) describe(k pick) string {
	id := it.levels[k.level].id
	if it.streamed(k) > 0 {
		return "streamed " + id
	}
	return id
}

// Budgets lists n budgets from the smallest that works to that of b, evenly by
// their logarithm, each a multiple of 4 KiB. *InfeasibleError if b does not
// work.
func Budgets(t *doc.Table, m *doc.Machine, b doc.Budget, o Options, n int) ([]int64, error) {
	s, err := newSolver(t, m, b, o)
	if err != nil {
		return nil, err
	}
	if err := s.works(); err != nil {
		return nil, s.infeasible(err)
	}
	least, most := float64(s.smallestRAM()), float64(s.budget.MaxRAMBytes)
	ram := []int64{s.budget.MaxRAMBytes}
	for i := range n - 1 {
		v := least * math.Pow(most/least, float64(i)/float64(n-1))
		ram = append(ram, (int64(v)+ramStep-1)/ramStep*ramStep)
	}
	slices.Sort(ram)
	return slices.Compact(ram), nil
}
