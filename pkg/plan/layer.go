package plan

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// layerOption is one way to hold all experts of a layer. Each expert starts
// at a level; increments take experts up, along the lower convex hull of
// their levels, so that the increments worth a price of RAM are those at the
// front of one list.
type layerOption struct {
	bank   bank      // slots are decided later where experts stream
	fixed  amounts   // slots of upgrades: their reads
	starts []int     // level of each expert
	base   amounts   // of all experts at their start
	rises  []rise    // steepest first
	sums   []amounts // of the first n rises, on top of the base; sums[0] is zero
}

// amounts are what some experts add up to.
type amounts struct {
	kl        float64
	weights   int64 // resident bytes
	disk      int64
	computeNs float64
	ringNs    float64
	residents int // experts that left the slots
}

// rise takes one expert one level up its hull.
type rise struct {
	expert int32 // index into the layer's experts
	to     int32
	slope  float64 // cost saved per byte of RAM and disk
}

// layerOptions builds the options of layer n at a price of compute.
func (s *search) layerOptions(n int, compute float64) []layerOption {
	l := &s.p.layers[n]
	plain := func(it *item, m int) (kl, computeNs float64) {
		return it.levels[m].kl, it.share * it.levels[m].computeNs
	}
	resident := layerOption{starts: make([]int, len(l.experts))} // the fewest bytes come first
	options := []layerOption{s.climbable(n, resident, compute, plain)}
	if !s.mode.slots {
		return options
	}
	for _, starts := range s.p.commonLevels(l) {
		bytes := s.p.items[l.experts[0]].levels[starts[0]].bytes
		o := layerOption{starts: starts, bank: bank{tier: 0, bytes: bytes}}
		options = append(options, s.climbable(n, o, compute, plain))
	}
	for _, b := range s.p.upgradeBanks(l) {
		h := l.upgradeHit(b.slots)
		o := layerOption{bank: b, starts: make([]int, len(l.experts))}
		o.fixed.ringNs = s.p.speeds.read(s.p.promoted(l, b), b.bytes)
		options = append(options, s.climbable(n, o, compute, func(it *item, m int) (kl, computeNs float64) {
			kl, computeNs = plain(it, m)
			gain, more := it.upgrade(m, b, h)
			return kl - gain, computeNs + more
		}))
	}
	return options
}

// streams reports whether the option's experts start in slots.
func (o *layerOption) streams() bool { return o.bank.bytes > 0 && o.bank.tier == 0 }

// climbable adds base and rises to an option, in which an expert at a level
// costs so much KL and compute.
func (s *search) climbable(n int, o layerOption, compute float64, costs func(it *item, level int) (kl, computeNs float64)) layerOption {
	l := &s.p.layers[n]
	o.rises = make([]rise, 0, 4*len(l.experts))
	t := costTable{width: s.p.mostLevels(l)}
	t.cells = make([]levelCost, t.width*len(l.experts))
	for j, e := range l.experts {
		it := &s.p.items[e]
		row := t.row(j)[:len(it.levels)]
		for m := range row {
			c := &row[m]
			c.kl, c.ns = costs(it, m)
			c.cost = c.kl + compute*c.ns
		}
		start := o.starts[j]
		o.base.kl += row[start].kl
		o.base.disk += it.levels[start].bytes
		o.base.computeNs += row[start].ns
		if !o.streams() {
			o.base.weights += it.levels[start].bytes
		}
		o.rises = it.hull(o.rises, j, start, row)
	}
	slices.SortFunc(o.rises, steeper)
	s.sumRises(l, &o, &t)
	return o
}

// levelCost is what an expert costs at a level: cost is kl plus the price of
// ns of compute.
type levelCost struct{ kl, ns, cost float64 }

// costTable has a row of level costs for each expert of a layer.
type costTable struct {
	cells []levelCost
	width int
}

func (t *costTable) row(expert int) []levelCost {
	return t.cells[expert*t.width : (expert+1)*t.width]
}

func (p *problem) mostLevels(l *moeLayer) (most int) {
	for _, e := range l.experts {
		most = max(most, len(p.items[e].levels))
	}
	return most
}

// steeper orders rises by slope, the steepest first. Ties go by expert, so
// that the order is one, and by level, so that an expert climbs in order.
func steeper(a, b rise) int {
	switch {
	case a.slope > b.slope:
		return -1
	case a.slope < b.slope:
		return 1
	case a.expert != b.expert:
		return cmp.Compare(a.expert, b.expert)
	}
	return cmp.Compare(a.to, b.to)
}

// sumRises adds up what the first rises of an option change.
func (s *search) sumRises(l *moeLayer, o *layerOption, t *costTable) {
	at := slices.Clone(o.starts)
	o.sums = make([]amounts, 1, len(o.rises)+1)
	var sum amounts
	for _, r := range o.rises {
		levels := s.p.items[l.experts[r.expert]].levels
		row := t.row(int(r.expert))
		from := at[r.expert]
		sum.kl += row[r.to].kl - row[from].kl
		sum.computeNs += row[r.to].ns - row[from].ns
		bytes := levels[r.to].bytes - levels[from].bytes
		sum.disk += bytes
		sum.weights += bytes
		if o.streams() && from == o.starts[r.expert] {
			sum.residents++
		}
		at[r.expert] = int(r.to)
		o.sums = append(o.sums, sum)
	}
}

// hull appends the rises of one expert from a start level: the lower convex
// hull of cost over bytes, from the start to more bytes.
func (it *item) hull(rises []rise, expert, start int, costs []levelCost) []rise {
	at := start
	for {
		best, slope := -1, 0.0
		for m := at + 1; m < len(costs); m++ {
			saved := costs[at].cost - costs[m].cost
			if saved <= 0 {
				continue
			}
			// Levels of equal bytes are sorted by KL: the first is as good.
			bytes := it.levels[m].bytes - it.levels[at].bytes
			if v := saved / max(1, float64(bytes)); v > slope {
				best, slope = m, v
			}
		}
		if best < 0 {
			return rises
		}
		rises = append(rises, rise{expert: int32(expert), to: int32(best), slope: slope})
		at = best
	}
}

// commonLevels lists the levels that all experts of a layer have with equal
// bytes, and that no cheaper level beats: those that can be streamed through
// slots of one size. Each is the level's index for every expert.
func (p *problem) commonLevels(l *moeLayer) [][]int {
	var common [][]int
	first := &p.items[l.experts[0]]
	least := math.Inf(1)
	for i := range first.levels {
		if first.levels[i].kl >= least {
			continue
		}
		index := make([]int, len(l.experts))
		for j, e := range l.experts {
			index[j] = slices.IndexFunc(p.items[e].levels, func(v level) bool {
				return v.id == first.levels[i].id && v.bytes == first.levels[i].bytes
			})
		}
		if !slices.Contains(index, -1) {
			least = first.levels[i].kl
			common = append(common, index)
		}
	}
	return common
}

// upgradeBanks lists the slots for upgrades that are worth a look: where an
// LRU hits more than the same number of the most popular experts would get.
// Elsewhere it is better to keep those at a higher level for good.
func (p *problem) upgradeBanks(l *moeLayer) []bank {
	var banks []bank
	it := &p.items[l.experts[0]]
	for slots := l.topK; slots < len(l.experts); slots *= 2 {
		if l.hit[slots] <= l.popular[slots] {
			continue
		}
		sizes := []int64{}
		for from := range it.levels {
			if up := it.next(from, math.MaxInt64); up >= 0 {
				sizes = append(sizes, delta(&it.levels[from], &it.levels[up]))
			}
		}
		slices.Sort(sizes)
		for _, n := range thin(slices.Compact(sizes), 3) {
			banks = append(banks, bank{slots: slots, tier: 1, bytes: n})
		}
	}
	return banks
}

// chosen is an option with its rises and slots decided.
type chosen struct {
	option *layerOption
	rises  int // how many of the option's
	slots  int
	amounts
	demandNs float64
	cost     float64
	bound    float64 // no other rises and slots of the option cost less
}

// decide takes the option's rises that are worth the prices and, where
// experts stream, the number of slots.
func (s *search) decide(n int, o *layerOption, pr *prices) chosen {
	l := &s.p.layers[n]
	perByte := pr.ram + pr.disk
	c := chosen{option: o, slots: o.bank.slots, amounts: o.base}
	c.rises = sort.Search(len(o.rises), func(i int) bool { return o.rises[i].slope <= perByte })
	sum := &o.sums[c.rises]
	c.kl += sum.kl
	c.weights += sum.weights
	c.disk += sum.disk
	c.computeNs += sum.computeNs
	c.residents = sum.residents
	c.ringNs = o.fixed.ringNs
	excess := 0.0
	if o.streams() {
		excess = s.capacity(l, o, pr, &c)
	}
	c.cost = c.kl + pr.ram*float64(c.weights+int64(c.slots)*o.bank.bytes) + pr.disk*float64(c.disk) +
		pr.compute*c.computeNs + pr.ring*c.ringNs + pr.demand*c.demandNs
	c.bound = c.cost - excess
	return c
}

// capacity decides how many experts a streaming layer holds: its residents,
// and slots, of which one token's working set is the least. It returns how
// much more that costs than if residents needed no slots beside them, which
// no choice of fewer residents undercuts.
func (s *search) capacity(l *moeLayer, o *layerOption, pr *prices, c *chosen) (excess float64) {
	bytes := o.bank.bytes
	// Residents took the place of their slots: their bytes there count.
	c.weights += int64(c.residents) * bytes
	missNs := float64(l.topK) * s.p.speeds.read(float64(bytes), bytes)
	free, least := math.Inf(1), math.Inf(1)
	first := min(c.residents+l.topK, len(l.experts))
	for held := l.topK; held <= len(l.experts); held++ {
		demand := missNs * (1 - l.hit[held])
		v := pr.ram*float64(int64(held)*bytes) + pr.demand*demand
		free = min(free, v)
		if held >= first && v < least {
			least = v
			c.slots, c.demandNs = held-c.residents, demand
		}
	}
	return least - free
}

// apply writes a decided layer into a solution.
func (s *search) apply(n int, c *chosen, out *solution) {
	l := &s.p.layers[n]
	for j, e := range l.experts {
		out.picks[e] = s.p.items[e].whole(c.option.starts[j])
		if c.option.streams() {
			out.picks[e].resident = 0
		}
	}
	for _, r := range c.option.rises[:c.rises] {
		e := l.experts[r.expert]
		out.picks[e] = s.p.items[e].whole(int(r.to))
	}
	out.banks[n] = bank{}
	if c.slots > 0 {
		out.banks[n] = c.option.bank
		out.banks[n].slots = c.slots
	}
}
