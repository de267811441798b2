package plan

import (
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// problem is what the solver works on: items and layers, what they cost, and
// what there is.
type problem struct {
	table   *doc.Table
	items   []item
	ops     int // items that are ops: all, or all but the last
	layers  []moeLayer
	layerOf []int // per item: index into layers, -1 for dense items
	place   []int // per item: index into the experts of its layer
	dense   []int // the dense items
	speeds  *speeds
	opt     *Options

	free       int64   // bytes for weights, slots, ring, pool and what the KV cache takes above its smallest
	disk       int64   // bytes for all records; 0: no limit
	dispatchNs float64 // fixed costs of one token
	worstKL    float64 // no plan has more
	largest    amounts // nor of anything else

	pricer  *layerPricer
	experts map[expertsAt]amounts // what the layers took at prices that were asked for
}

// newProblem builds the problem of a table, with kv, if it is not nil, as the
// last item.
func newProblem(t *doc.Table, sp *speeds, kv *item, free, disk int64, opt *Options) (*problem, int, error) {
	items, cleaned, err := buildItems(t, sp)
	if err != nil {
		return nil, 0, err
	}
	ops := len(items)
	if kv != nil {
		items = append(items, *kv)
	}
	p := &problem{table: t, items: items, ops: ops, speeds: sp, opt: opt, free: free, disk: disk, layerOf: make([]int, len(items)), place: make([]int, len(items))}
	p.layers = buildLayers(t, items[:ops], opt.Classes)
	for i := range p.layerOf {
		p.layerOf[i] = -1
	}
	for n := range p.layers {
		for j, e := range p.layers[n].experts {
			p.layerOf[e], p.place[e] = n, j
		}
	}
	p.worstKL = worstOf(items)
	runs := 1.0 // the head, if it is tied
	for i := range items {
		if p.layerOf[i] < 0 {
			p.dense = append(p.dense, i)
			runs++
		}
	}
	for n := range p.layers {
		l := &p.layers[n]
		runs += float64(l.topK)
		l.upgrades = p.buildUpgrades(l)
	}
	p.dispatchNs = runs * sp.dispatchNs
	p.largest = p.largestOf()
	p.pricer, p.experts = newLayerPricer(p), map[expertsAt]amounts{}
	return p, cleaned, nil
}

// worstOf is what all items lose at their worst levels.
func worstOf(items []item) (sum float64) {
	for i := range items {
		var worst float64
		for l := range items[i].levels {
			worst = max(worst, items[i].levels[l].kl)
		}
		sum += worst
	}
	return sum
}

// pick is how an item is held: at a level, of which the first records are
// resident. The others stream: through the ring, or, for an expert, in slots.
type pick struct {
	level    int
	resident int
}

// bank is a layer's slots.
type bank struct {
	slots int   // 0: none
	tier  int   // 0: for experts that are not resident; 1: for upgrades of resident ones
	bytes int64 // of one slot
}

// solution is a plan before it is written down.
type solution struct {
	picks []pick
	banks []bank // per layer
}

func (p *problem) newSolution() *solution {
	return &solution{picks: make([]pick, len(p.items)), banks: make([]bank, len(p.layers))}
}

func (s *solution) clone() *solution {
	return &solution{append([]pick(nil), s.picks...), append([]bank(nil), s.banks...)}
}

// usage is what a solution costs.
type usage struct {
	kl        float64 // sum over items, before the link
	variance  float64 // of kl
	weights   int64
	slots     int64
	ring      int64
	kv        int64 // that the KV cache takes above its smallest
	disk      int64 // default records
	computeNs float64
	ringNs    float64 // reads that overlap with compute
	demandNs  float64 // reads that a token waits for
	readBytes float64 // per token
}

func (u *usage) ram() int64 { return u.weights + u.slots + u.ring + u.kv }

// minus is the difference of two usages.
func (u *usage) minus(v *usage) amounts {
	return amounts{
		kl: u.kl - v.kl, ram: u.ram() - v.ram(), disk: u.disk - v.disk,
		computeNs: u.computeNs - v.computeNs, ringNs: u.ringNs - v.ringNs, demandNs: u.demandNs - v.demandNs,
	}
}

// timeNs is one token: reads ahead overlap with compute, demands do not.
func (u *usage) timeNs() float64 { return max(u.computeNs, u.ringNs) + u.demandNs }

// streamed is what an item reads per run.
func (it *item) streamed(k pick) (n int64) {
	l := &it.levels[k.level]
	if k.resident == len(l.records) {
		return 0
	}
	if k.resident == 0 {
		return l.bytes
	}
	for _, r := range l.records[k.resident:] {
		n += r
	}
	return n
}

func (it *item) whole(level int) pick { return pick{level, len(it.levels[level].records)} }

// use adds up a solution from scratch.
func (p *problem) use(s *solution) usage {
	u := usage{computeNs: p.dispatchNs}
	for i := range p.items {
		p.itemUse(&u, i, s.picks[i], 1)
	}
	for n := range p.layers {
		p.bankUse(&u, s, n, 1)
	}
	u.ring = footprint.RingBytes(p.ringOps(s))
	return u
}

// ringOps lists what each op sends through the ring, in op order.
func (p *problem) ringOps(s *solution) []int64 {
	var ring []int64
	for _, i := range p.dense {
		if n := p.items[i].streamed(s.picks[i]); n > 0 {
			ring = append(ring, n)
		}
	}
	return ring
}

// itemUse adds (sign 1) or takes away (-1) what one item costs by itself.
func (p *problem) itemUse(u *usage, i int, k pick, sign int64) {
	it := &p.items[i]
	l := &it.levels[k.level]
	streamed := it.streamed(k)
	f := float64(sign)
	if it.op == nil {
		u.kv += sign * l.bytes
	} else {
		u.weights += sign * (l.bytes - streamed)
	}
	u.disk += sign * l.disk()
	u.kl += f * l.kl
	u.variance += f * l.klError * l.klError
	u.computeNs += f * it.share * l.computeNs
	if streamed > 0 && p.layerOf[i] < 0 {
		u.ringNs += f * p.speeds.read(float64(streamed), streamed)
		u.readBytes += f * float64(streamed)
	}
}

// bankUse adds or takes away what a layer's slots cost and give.
func (p *problem) bankUse(u *usage, s *solution, n int, sign int64) {
	b, l, f := s.banks[n], &p.layers[n], float64(sign)
	if b.slots == 0 {
		return
	}
	u.slots += sign * int64(b.slots) * b.bytes
	if b.tier == 0 {
		bytes := p.missed(s, n)
		u.demandNs += f * p.speeds.demand(bytes, b.bytes, l.topK)
		u.readBytes += f * bytes
		return
	}
	h := l.upgradeHit(b.slots)
	for _, e := range l.experts {
		gain, more := p.items[e].upgrade(s.picks[e].level, b, h)
		u.kl -= f * gain
		u.computeNs += f * more
	}
	bytes := p.promoted(l, b)
	u.ringNs += f * p.speeds.read(bytes, b.bytes)
	u.readBytes += f * bytes
}

// upgrade is the KL that an expert at a level gains, and the compute that it
// takes more, where its upgrade is in the bank's slots at rate h.
func (it *item) upgrade(level int, b bank, h float64) (gain, computeNs float64) {
	up := it.next(level, b.bytes)
	if up < 0 {
		return 0, 0
	}
	from, to := &it.levels[level], &it.levels[up]
	return h * (from.kl - to.kl), it.share * h * max(0, to.computeNs-from.computeNs)
}

// missed is the expected bytes of experts per token that neither are resident
// nor in the layer's slots. Residents count as slots that never change, so
// that the hit rate is that of an LRU over both.
func (p *problem) missed(s *solution, n int) float64 {
	l := &p.layers[n]
	var share, weighted, plain float64 // of experts that stream
	streaming, level, alike := 0, 0, true
	for _, e := range l.experts {
		k := s.picks[e]
		if k.resident > 0 {
			continue
		}
		alike = alike && (streaming == 0 || k.level == level)
		level = k.level
		streaming++
	}
	if streaming == 0 {
		return 0
	}
	bytes := float64(s.banks[n].bytes)
	if !alike || p.items[l.experts[0]].levels[level].bytes != s.banks[n].bytes {
		for _, e := range l.experts {
			if b := p.items[e].streamed(s.picks[e]); b > 0 {
				share += p.items[e].share
				weighted += p.items[e].share * float64(b)
				plain += float64(b)
			}
		}
		bytes = plain / float64(streaming)
		if share > 0 {
			bytes = weighted / share
		}
	}
	held := min(len(l.experts), s.banks[n].slots+len(l.experts)-streaming)
	return float64(l.topK) * (1 - l.hit[held]) * bytes
}

// upgradeHit is the share of a layer's requests, as far as they count, that
// slots serve whose contents change only every slot period. Where that was not
// measured, of what an LRU gains over the most popular experts by locality half
// is taken for lost.
func (l *moeLayer) upgradeHit(slots int) float64 {
	if slots < len(l.upgrade) {
		return l.upgrade[slots]
	}
	lru, popular := l.hit[slots], l.popular[slots]
	if lru <= popular {
		return lru
	}
	return (lru + popular) / 2
}

// promoted is the expected bytes per token that upgrades in slots read.
func (p *problem) promoted(l *moeLayer, b bank) float64 {
	period := float64(p.opt.SlotPeriod)
	misses := period * float64(l.topK) * (1 - l.hit[b.slots])
	return min(float64(b.slots), misses) / period * float64(b.bytes)
}

// next is the useful level above from whose delta is at most limit: the one
// that takes away most KL per byte of delta; -1 if there is none.
func (it *item) next(from int, limit int64) int {
	best, ratio := -1, 0.0
	f := &it.levels[from]
	for i := range it.levels {
		to := &it.levels[i]
		gain := f.kl - to.kl
		d := delta(f, to)
		if gain <= 0 || d > limit || len(to.encodings) > 1 && !to.extends(f) {
			continue
		}
		if r := gain / float64(d); r > ratio {
			best, ratio = i, r
		}
	}
	return best
}
