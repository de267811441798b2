package plan

import (
	"cmp"
	"math"
	"slices"
)

// Ways to hold the experts of a layer, beside the set of classes they take.
// Either all are resident, perhaps under a bank of slots for upgrades; or
// those of the set's cheapest class stream through slots. A resident expert
// of a streaming layer takes the place of a slot that never changes, so that
// an LRU over H places, residents and slots together, hits as often as the
// layer's curve says of H slots. Then only H ties the experts together:
//
//	bytes = H * (bytes of a slot) + sum over residents of (their bytes - bytes of a slot)

// layerPricer decides layers at prices. It holds the scratch for that.
type layerPricer struct {
	p     *problem
	cost  [][]float64 // per class and expert
	rows  [][]float64
	class []int // of each expert of the layer that was completed last
	gains []gain
	tries []try
	place []float64
}

// gain is what an expert saves if it is resident instead of in a slot.
type gain struct {
	expert int
	saved  float64
}

// try is a set whose cheapest class might stream, with a cost that is not too
// high.
type try struct {
	set  classSet
	cost float64
}

func newLayerPricer(p *problem) *layerPricer {
	most := 0
	for n := range p.layers {
		most = max(most, len(p.layers[n].experts))
	}
	x := &layerPricer{p: p, class: make([]int, most)}
	for range maxClasses {
		x.cost = append(x.cost, make([]float64, most))
		x.rows = append(x.rows, make([]float64, most))
	}
	return x
}

// chosen is how a layer is held, what that takes, and what it costs at the
// prices it was chosen at. No other way costs less.
type chosen struct {
	set       classSet
	streams   bool // the set's cheapest class, but for residents
	residents int
	bank      bank
	amounts
	cost float64
}

// amounts are what a part of a solution takes and loses.
type amounts struct {
	kl        float64
	ram, disk int64
	computeNs float64
	ringNs    float64
	demandNs  float64
}

func (a *amounts) add(b *amounts) {
	a.kl += b.kl
	a.ram += b.ram
	a.disk += b.disk
	a.computeNs += b.computeNs
	a.ringNs += b.ringNs
	a.demandNs += b.demandNs
}

// at is what the amounts cost at prices.
func (a *amounts) at(pr *prices) float64 {
	return a.kl + pr.ram*float64(a.ram) + pr.disk*float64(a.disk) + pr.compute*a.computeNs + pr.ring*a.ringNs + pr.demand*a.demandNs
}

// decide finds the cheapest way to hold layer n.
func (x *layerPricer) decide(n int, pr *prices, slots bool) chosen {
	l := &x.p.layers[n]
	best := chosen{cost: math.Inf(1)}
	cost := x.costs(l, nil, pr)
	var places []float64 // per class: what its places cost more than all experts resident at it
	streams := slots && !l.resident
	if streams {
		places = x.places(l, pr)
	}
	x.tries = x.tries[:0]
	sumOfSets(cost, x.scratch(l), l.limit, func(set classSet, sum float64) {
		if sum < best.cost {
			best = chosen{set: set, cost: sum}
		}
		if streams {
			x.tries = append(x.tries, try{set, sum + places[set.lowest()]})
		}
	})
	slices.SortFunc(x.tries, func(a, b try) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.set, b.set)) })
	for _, t := range x.tries {
		if t.cost >= best.cost {
			break
		}
		if c := x.streaming(l, cost, t.set, pr); c.cost < best.cost {
			best = c
		}
	}
	if slots {
		for i := range l.upgrades {
			x.upgraded(l, &l.upgrades[i], pr, &best)
		}
	}
	x.complete(l, pr, &best)
	return best
}

// streaming decides how many experts are resident, and how many slots there
// are, where the cheapest class of a set streams. A token's working set needs
// slots beside the residents.
func (x *layerPricer) streaming(l *moeLayer, cost [][]float64, set classSet, pr *prices) chosen {
	low := set.lowest()
	bytes := l.classes.bytes[low]
	c := chosen{set: set, streams: true, bank: bank{bytes: bytes}}
	class := x.class[:len(l.experts)]
	x.assign(cost, set, class)
	x.gains = x.gains[:0]
	saved := 0.0
	for j, k := range class {
		c.cost += cost[low][j]
		if k != low {
			g := gain{j, cost[low][j] - cost[k][j]}
			saved += g.saved
			x.gains = append(x.gains, g)
		}
	}
	c.cost -= pr.ram * float64(bytes*int64(len(l.experts)))
	missNs := x.p.missNs(l, bytes)
	at := func(h int) float64 {
		return pr.ram*float64(bytes*int64(h)) + pr.demand*missNs*(1-l.hit[h])
	}
	// The best number of places is at least that of the residents and the
	// working set. Where it is without asking for that, all is decided.
	places, placeCost := len(l.experts), at(len(l.experts))
	for h := places - 1; h >= l.topK; h-- {
		if v := at(h); v < placeCost {
			places, placeCost = h, v
		}
	}
	c.residents, c.bank.slots = len(x.gains), places-len(x.gains)
	least := placeCost - saved
	if c.bank.slots < min(l.topK, len(l.experts)-c.residents) {
		// Else those that save most are resident; with each there is one
		// place more that must be there.
		slices.SortFunc(x.gains, func(a, b gain) int {
			switch {
			case a.saved > b.saved:
				return -1
			case a.saved < b.saved:
				return 1
			}
			return a.expert - b.expert
		})
		least = math.Inf(1)
		places, placeCost = len(l.experts), at(len(l.experts))
		h := places
		for r := len(x.gains); r >= 0; r-- {
			for first := min(r+l.topK, len(l.experts)); h > first; {
				h--
				if v := at(h); v < placeCost {
					places, placeCost = h, v
				}
			}
			if v := placeCost - saved; v < least {
				least, c.residents, c.bank.slots = v, r, places-r
			}
			if r > 0 {
				saved -= x.gains[r-1].saved
			}
		}
		for _, g := range x.gains[c.residents:] {
			class[g.expert] = low
		}
	}
	c.cost += least
	return c
}

// costs fills a row for each class: what each expert costs if it is resident.
// With an upgrade, a share of its runs is served by the slots.
func (x *layerPricer) costs(l *moeLayer, up *upgrade, pr *prices) [][]float64 {
	perByte := pr.ram + pr.disk
	for c := range l.classes.bytes {
		row := x.cost[c][:len(l.experts)]
		kl, bytes := l.classes.kl[c], perByte*float64(l.classes.bytes[c])
		ns := pr.compute * l.classes.ns[c]
		for j := range row {
			row[j] = kl[j] + bytes + ns*l.share[j]
		}
		if up != nil {
			for j := range row {
				row[j] += pr.compute*up.moreNs[c][j] - up.gain[c][j]
			}
		}
		x.cost[c] = row
	}
	return x.cost[:len(l.classes.bytes)]
}

func (x *layerPricer) scratch(l *moeLayer) [][]float64 {
	for i := range x.rows {
		x.rows[i] = x.rows[i][:len(l.experts)]
	}
	return x.rows
}

// places is, for each class, what H places of its size and their misses cost,
// at the best H, less what the bytes of all experts at that class do.
func (x *layerPricer) places(l *moeLayer, pr *prices) []float64 {
	x.place = x.place[:0]
	for _, bytes := range l.classes.bytes {
		missNs := x.p.missNs(l, bytes)
		least := math.Inf(1)
		for h := l.topK; h <= len(l.experts); h++ {
			least = min(least, pr.ram*float64(bytes*int64(h-len(l.experts)))+pr.demand*missNs*(1-l.hit[h]))
		}
		x.place = append(x.place, least)
	}
	return x.place
}

// missNs is the time of a token's reads if no slot ever hits.
func (p *problem) missNs(l *moeLayer, bytes int64) float64 {
	return float64(l.topK) * p.speeds.demand(float64(bytes), bytes, l.topK)
}

// upgraded looks at resident experts with slots for upgrades.
func (x *layerPricer) upgraded(l *moeLayer, up *upgrade, pr *prices, best *chosen) {
	fixed := pr.ram*float64(int64(up.bank.slots)*up.bank.bytes) + pr.ring*up.ringNs
	cost := x.costs(l, up, pr)
	all := fixed
	for j := range l.experts {
		least := math.Inf(1)
		for c := range cost {
			least = min(least, cost[c][j])
		}
		all += least
	}
	if all >= best.cost {
		return // not even without a limit of classes
	}
	sumOfSets(cost, x.scratch(l), l.limit, func(set classSet, sum float64) {
		if v := sum + fixed; v < best.cost {
			*best = chosen{set: set, bank: up.bank, cost: v}
		}
	})
}

// complete decides the class of each expert and adds up what the choice takes.
func (x *layerPricer) complete(l *moeLayer, pr *prices, c *chosen) {
	var up *upgrade
	if !c.streams && c.bank.slots > 0 {
		up = l.upgradeOf(c.bank)
	}
	cost := x.cost[:len(l.classes.bytes)]
	if len(l.upgrades) > 0 {
		cost = x.costs(l, up, pr) // others were looked at since
	}
	if c.streams {
		x.streaming(l, cost, c.set, pr)
	} else {
		x.assign(cost, c.set, x.class[:len(l.experts)])
	}
	for j := range l.experts {
		k := x.class[j]
		c.kl += l.classes.kl[k][j]
		c.computeNs += l.share[j] * l.classes.ns[k]
		c.disk += l.classes.bytes[k]
		c.ram += l.classes.bytes[k]
		if up != nil {
			c.kl -= up.gain[k][j]
			c.computeNs += up.moreNs[k][j]
		}
	}
	switch {
	case up != nil:
		c.ram += int64(up.bank.slots) * up.bank.bytes
		c.ringNs = up.ringNs
	case c.streams:
		held := c.residents + c.bank.slots
		c.ram += int64(held-len(l.experts)) * c.bank.bytes
		c.demandNs = x.p.missNs(l, c.bank.bytes) * (1 - l.hit[held])
	}
}

// assign gives each expert the class of a set that costs it least.
func (x *layerPricer) assign(cost [][]float64, set classSet, class []int) {
	low := set.lowest()
	for j := range class {
		class[j] = low
	}
	for c := low + 1; c < len(cost); c++ {
		if !set.has(c) {
			continue
		}
		row := cost[c]
		for j, k := range class {
			if row[j] < cost[k][j] {
				class[j] = c
			}
		}
	}
}

// write puts a layer as chosen at the prices into a solution.
func (x *layerPricer) write(n int, c *chosen, out *solution) {
	l := &x.p.layers[n]
	low := c.set.lowest()
	all := !c.streams || c.residents+c.bank.slots >= len(l.experts) // each has a place
	for j, e := range l.experts {
		k := x.class[j]
		out.picks[e] = x.p.items[e].whole(l.classes.level[k][j])
		if !all && k == low {
			out.picks[e].resident = 0
		}
	}
	out.banks[n] = c.bank
	if c.streams && all {
		out.banks[n] = bank{}
	}
}

// upgrade is a bank of slots for upgrades of resident experts: what it gives
// each at each class, and what it reads.
type upgrade struct {
	bank   bank
	gain   [][]float64 // nats, per class and expert
	moreNs [][]float64 // of compute
	ringNs float64
}

func (l *moeLayer) upgradeOf(b bank) *upgrade {
	for i := range l.upgrades {
		if l.upgrades[i].bank == b {
			return &l.upgrades[i]
		}
	}
	return nil
}

// buildUpgrades lists the banks that are worth a look: where an LRU hits more
// than the same number of the most popular experts would get. Elsewhere it is
// better to keep those at a higher level for good.
func (p *problem) buildUpgrades(l *moeLayer) []upgrade {
	var list []upgrade
	for slots := l.topK; slots < len(l.experts); slots *= 2 {
		if l.hit[slots] <= l.popular[slots] {
			continue
		}
		for _, bytes := range p.upgradeSizes(l) {
			b := bank{slots: slots, tier: 1, bytes: bytes}
			up := upgrade{bank: b, ringNs: p.speeds.read(p.promoted(l, b), bytes)}
			h := l.upgradeHit(slots)
			for c := range l.classes.bytes {
				gain, more := make([]float64, len(l.experts)), make([]float64, len(l.experts))
				for j, e := range l.experts {
					if m := l.classes.level[c][j]; m >= 0 {
						gain[j], more[j] = p.items[e].upgrade(m, b, h)
					}
				}
				up.gain, up.moreNs = append(up.gain, gain), append(up.moreNs, more)
			}
			list = append(list, up)
		}
	}
	return list
}

// upgradeSizes lists at most three sizes of slots.
func (p *problem) upgradeSizes(l *moeLayer) []int64 {
	var sizes []int64
	it := &p.items[l.experts[0]]
	for from := range it.levels {
		if up := it.next(from, math.MaxInt64); up >= 0 {
			sizes = append(sizes, delta(&it.levels[from], &it.levels[up]))
		}
	}
	return thin(sortedSet(sizes), 3)
}
