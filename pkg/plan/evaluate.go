package plan

import (
	"errors"
	"math"
	"math/bits"
	"slices"

	"substrate/pkg/doc"
)

// evaluator computes the bound of one mode at given prices in integers: units
// of 2^-shift picoNats. It is written to be read, not to be fast, and shares
// nothing with the search but the tables of what things cost.
type evaluator struct {
	*solver
	mode      mode
	at        *doc.DualBound
	limits    *doc.Certificate
	ringLeast int64
	layers    map[pricesAt]int64 // of all layers, at prices that were looked at
}

// pricesAt is what the cost of all layers depends on.
type pricesAt struct {
	shift                    int
	ram, disk, compute, read int64
	slots                    bool
}

// unit writes nats in units, rounded down.
func (e *evaluator) unit(nats float64) int64 {
	return int64(math.Floor(math.Ldexp(nats*1e12, e.at.Shift)))
}

// bound is what the prices prove: the cost of the cheapest choice of
// everything, less that of what there is, in picoNats.
func (e *evaluator) bound() (int64, error) {
	if !e.fits() {
		return 0, errors.New("prices too large to add up exactly")
	}
	p := e.problem
	sum := e.time(e.at.Compute, p.dispatchNs)
	for _, i := range p.dense {
		sum += e.dense(&p.items[i])
	}
	at := pricesAt{e.at.Shift, e.at.RAM, e.at.Disk, e.at.Compute, e.at.Read, e.mode.slots}
	experts, ok := e.layers[at]
	if !ok {
		for n := range p.layers {
			experts += e.layer(n)
		}
		e.layers[at] = experts
	}
	sum += experts
	sum -= e.at.RAM * (e.limits.RAMBytes - e.ringLeast)
	sum -= e.at.Disk * e.limits.DiskBytes
	sum -= (e.at.Compute + e.at.Read) * e.limits.TokenNs
	return sum >> e.at.Shift, nil // rounds down
}

// fits reports whether no sum can leave 63 bits.
func (e *evaluator) fits() bool {
	m := e.problem.most()
	m.ram = max(m.ram, e.limits.RAMBytes)
	m.disk = max(m.disk, e.limits.DiskBytes)
	ns := max(m.computeNs+m.ringNs+m.demandNs, float64(e.limits.TokenNs))
	sum := math.Ldexp(1e12*m.kl, e.at.Shift) + float64(e.at.RAM)*float64(m.ram) + float64(e.at.Disk)*float64(m.disk) +
		(float64(e.at.Compute)+float64(e.at.Read))*ns
	return sum < 1<<62
}

// cost is that of some amounts.
func (e *evaluator) cost(a amounts) int64 {
	return e.unit(a.kl) + e.at.RAM*a.ram + e.at.Disk*a.disk +
		e.time(e.at.Compute, a.computeNs) + e.time(e.at.Read, a.ringNs) + e.time(e.at.Compute+e.at.Read, a.demandNs)
}

// time is what a time costs: it is rounded down to 2^-timeBits ns.
func (e *evaluator) time(price int64, ns float64) int64 {
	high, low := bits.Mul64(uint64(price), uint64(ns*(1<<timeBits)))
	return int64(high<<(64-timeBits) | low>>timeBits)
}

const timeBits = 10

// dense is the least cost of an item that is not an expert: at any level,
// with any of its records streamed.
func (e *evaluator) dense(it *item) int64 {
	least := int64(math.MaxInt64)
	for m := range it.levels {
		l := &it.levels[m]
		for r := range len(l.records) + 1 {
			k := pick{m, r}
			streamed := it.streamed(k)
			if streamed > 0 && (!it.streams || streamed > e.mode.ringMax) {
				continue
			}
			least = min(least, e.cost(amounts{
				kl: l.kl, ram: l.bytes - streamed, disk: l.disk(), computeNs: it.share * l.computeNs,
				ringNs: e.problem.speeds.read(float64(streamed), streamed),
			}))
		}
	}
	return least
}

// layer is the least cost of a layer's experts over all sets of classes.
func (e *evaluator) layer(n int) int64 {
	l := &e.problem.layers[n]
	resident := e.costs(l, nil)
	least := int64(math.MaxInt64)
	for set := classSet(1); set < 1<<len(l.classes.bytes); set++ {
		members := set.members()
		if len(members) > l.limit {
			continue
		}
		if sum, ok := sumOf(resident, members); ok {
			least = min(least, sum)
		}
		if e.mode.slots {
			least = min(least, e.streaming(l, resident, members))
		}
	}
	if e.mode.slots {
		for i := range l.upgrades {
			up := &l.upgrades[i]
			cost := e.costs(l, up)
			fixed := e.cost(amounts{ram: int64(up.bank.slots) * up.bank.bytes, ringNs: up.ringNs})
			for set := classSet(1); set < 1<<len(l.classes.bytes); set++ {
				if members := set.members(); len(members) <= l.limit {
					if sum, ok := sumOf(cost, members); ok {
						least = min(least, sum+fixed)
					}
				}
			}
		}
	}
	return least
}

func (s classSet) members() (list []int) {
	for c := range maxClasses {
		if s.has(c) {
			list = append(list, c)
		}
	}
	return list
}

// notMeasured is the cost of a class that an expert was not measured at.
const notMeasured = math.MaxInt64

// costs is that of every expert, resident at each class.
func (e *evaluator) costs(l *moeLayer, up *upgrade) [][]int64 {
	rows := make([][]int64, len(l.classes.bytes))
	for c := range rows {
		rows[c] = make([]int64, len(l.experts))
		for j := range l.experts {
			if l.classes.level[c][j] < 0 {
				rows[c][j] = notMeasured
				continue
			}
			a := amounts{kl: l.classes.kl[c][j], ram: l.classes.bytes[c], disk: l.classes.bytes[c], computeNs: l.share[j] * l.classes.ns[c]}
			if up != nil {
				a.kl -= up.gain[c][j]
				a.computeNs += up.moreNs[c][j]
			}
			rows[c][j] = e.cost(a)
		}
	}
	return rows
}

// sumOf adds up what each expert's cheapest class of a set costs; ok is false
// if one has none.
func sumOf(cost [][]int64, members []int) (sum int64, ok bool) {
	for j := range cost[0] {
		least := int64(notMeasured)
		for _, c := range members {
			least = min(least, cost[c][j])
		}
		if least == notMeasured {
			return 0, false
		}
		sum += least
	}
	return sum, true
}

// streaming is the least cost of a layer whose experts of the cheapest class
// of a set share slots: over every number of residents, those that gain most,
// and every number of slots that holds a token's working set.
func (e *evaluator) streaming(l *moeLayer, cost [][]int64, members []int) int64 {
	low := members[0]
	bytes := l.classes.bytes[low]
	var sum int64
	var gains []int64 // of being resident instead
	for j, v := range cost[low] {
		if v == notMeasured {
			return math.MaxInt64
		}
		sum += v - e.at.RAM*bytes
		best := v // resident at the class itself
		for _, c := range members {
			best = min(best, cost[c][j])
		}
		gains = append(gains, v-best)
	}
	slices.SortFunc(gains, func(a, b int64) int {
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	// held[h] is the least cost of at least h places.
	missNs := e.problem.missNs(l, bytes)
	held := make([]int64, len(l.experts)+1)
	for h := len(l.experts); h >= 0; h-- {
		held[h] = e.cost(amounts{ram: bytes * int64(h), demandNs: missNs * (1 - l.hit[h])})
		if h < len(l.experts) {
			held[h] = min(held[h], held[h+1])
		}
	}
	least := int64(math.MaxInt64)
	for r := 0; r <= len(gains); r++ {
		least = min(least, sum+held[min(r+l.topK, len(l.experts))])
		if r < len(gains) {
			sum -= gains[r]
		}
	}
	return least
}
