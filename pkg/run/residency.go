package run

import (
	"math/bits"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// residency says where the records of a mode's levels live.
type residency struct {
	resident []bool // by record
	banks    []bankSize
	ring     int64

	weights, slots int64 // bytes of resident records and of banks
}

// bankSize is the slots of one layer; slots 0 is none. Tier as in
// doc.SlotLayer.
type bankSize struct {
	tier, slots int
	bytes       int64 // of one slot
}

// minSlots is the least number of slots of a layer with which one expert is
// computed while the next is read.
const minSlots = 2

// planned is the residency that a plan gives a mode. Records that it holds
// for no level of the mode count too.
func (p *program) planned(m Mode, plan *doc.Plan) *residency {
	from := &plan.Scheduled
	if m == Exact {
		from = &plan.Exact
	}
	byID := make(map[string]int, len(p.records))
	for i := range p.records {
		byID[p.records[i].id] = i
	}
	r := &residency{resident: make([]bool, len(p.records)), banks: make([]bankSize, len(p.experts))}
	for _, id := range from.Resident {
		r.resident[byID[id]] = true
	}
	for _, s := range from.Slots {
		if s.Layer < len(r.banks) && (s.Tier == 0 || m != Exact) {
			r.banks[s.Layer] = bankSize{tier: s.Tier, slots: s.Slots}
		}
	}
	p.measure(m, r)
	r.ring = max(r.ring, from.RingBytes)
	return r
}

// measure works out bytes: those of the residents, the least ring, the slots'.
// A layer that needs slots and has none gets as many as a token wants.
func (p *program) measure(m Mode, r *residency) {
	r.weights, r.slots = 0, 0
	for i, in := range r.resident {
		if in {
			r.weights += p.records[i].bytes
		}
	}
	for l := range p.experts {
		p.measureBank(m, r, l)
		r.slots += int64(r.banks[l].slots) * r.banks[l].bytes
	}
	r.ring = p.ringBytes(m, r)
}

// ringBytes is the least ring for the dense ops that stream.
func (p *program) ringBytes(m Mode, r *residency) int64 {
	var streamed []int64
	for _, n := range p.steps {
		if p.ops[n].owner != n {
			continue
		}
		if bytes := p.streamed(r, p.own(m, n)); bytes > 0 {
			streamed = append(streamed, bytes)
		}
	}
	return footprint.RingBytes(streamed)
}

// streamed is the bytes of a level that are not resident.
func (p *program) streamed(r *residency, t *tier) (bytes int64) {
	for _, i := range t.records {
		if !r.resident[i] {
			bytes += p.records[i].bytes
		}
	}
	return bytes
}

// upgrade is the records that tier 1 adds to tier 0 of an op, and their bytes.
func (p *program) upgrade(n int32) (records []int32, bytes int64) {
	o := &p.ops[n]
	if len(o.tiers) < 2 {
		return nil, 0
	}
	for _, i := range o.tiers[1].records {
		if !slices.Contains(o.tiers[0].records, i) {
			records = append(records, i)
			bytes += p.records[i].bytes
		}
	}
	return records, bytes
}

func (p *program) measureBank(m Mode, r *residency, l int) {
	var most int64
	for _, n := range p.experts[l] {
		most = max(most, p.streamed(r, p.own(m, n)))
	}
	b := &r.banks[l]
	switch {
	case most > 0:
		if b.slots == 0 || b.tier != 0 {
			b.slots = max(minSlots, p.arch.ExpertsPerToken)
		}
		b.tier, b.bytes = 0, most
	case b.tier == 0 || b.slots == 0:
		*b = bankSize{}
	default:
		for _, n := range p.experts[l] {
			_, bytes := p.upgrade(n)
			most = max(most, bytes)
		}
		if b.bytes = most; most == 0 {
			*b = bankSize{}
		}
	}
}

// bytes is all that the residency decides.
func (r *residency) bytes() int64 { return r.weights + r.slots + r.ring }

// cut is one step down in memory: records that stream from then on, and a
// bound on slots.
type cut struct {
	records    []int32
	noUpgrades bool // no banks of tier 1
	maxSlots   int  // of every bank; 0: no bound
}

// cuts is the order in which a run gives up memory, what costs least time per
// byte first: what the mode's levels do not need, upgrades, experts, slots
// beyond a token's, dense ops. Layers are spread over the model, so that what
// still is resident computes while the rest is read. The last cuts leave one
// slot, with nothing read while an expert computes.
func (p *program) cuts(m Mode) []cut {
	own := make([]bool, len(p.records))
	layers := make(map[doc.Kind][][]int32)
	add := func(n int32, kind doc.Kind, layer int) {
		for _, i := range p.own(m, n).records {
			own[i] = true
			// Compressed records cannot stream.
			if !p.records[i].zstd {
				layers[kind][layer] = append(layers[kind][layer], i)
			}
		}
	}
	for _, kind := range []doc.Kind{doc.KindMoEExpert, doc.KindMLPDense, doc.KindMoEShared, doc.KindAttention, doc.KindMoERouter} {
		layers[kind] = make([][]int32, len(p.experts))
	}
	layers[doc.KindLMHead], layers[doc.KindEmbedding] = make([][]int32, 1), make([][]int32, 1)
	for i := range p.ops {
		n, o := int32(i), &p.ops[i]
		switch {
		case o.kind == doc.KindNorm: // a few KiB, never worth a read
			for _, i := range p.own(m, n).records {
				own[i] = true
			}
		case o.owner == n:
			add(n, o.kind, max(0, o.layer))
		}
	}
	var rest []int32
	for i := range own {
		if !own[i] {
			rest = append(rest, int32(i))
		}
	}
	cuts := []cut{{records: rest}, {noUpgrades: true}}
	spread := func(kind doc.Kind, maxSlots int) {
		for _, l := range spreadOrder(len(layers[kind])) {
			if records := layers[kind][l]; len(records) > 0 {
				cuts = append(cuts, cut{records: records, maxSlots: maxSlots})
			}
		}
	}
	spread(doc.KindMoEExpert, 0)
	if k := p.arch.ExpertsPerToken; k > minSlots {
		cuts = append(cuts, cut{maxSlots: k})
	}
	spread(doc.KindMLPDense, 0)
	spread(doc.KindMoEShared, 0)
	spread(doc.KindAttention, 0)
	spread(doc.KindMoERouter, 0)
	cuts = append(cuts, cut{maxSlots: minSlots})
	spread(doc.KindLMHead, 0)
	spread(doc.KindEmbedding, 0)
	return append(cuts, cut{maxSlots: 1})
}

// spreadOrder lists 0 to n-1 so that every beginning of the list is spread
// evenly: the van der Corput sequence, bits reversed.
func spreadOrder(n int) []int {
	if n == 0 {
		return nil
	}
	width := bits.Len(uint(n - 1))
	var order []int
	for i := range 1 << width {
		if at := int(bits.Reverse64(uint64(i)) >> (64 - width) & (1<<width - 1)); at < n {
			order = append(order, at)
		}
	}
	return order
}

// apply makes a cut.
func (r *residency) apply(c cut) {
	for _, i := range c.records {
		r.resident[i] = false
	}
	for l := range r.banks {
		b := &r.banks[l]
		if c.noUpgrades && b.tier == 1 {
			*b = bankSize{}
		}
		if c.maxSlots > 0 {
			b.slots = min(b.slots, c.maxSlots)
		}
	}
}

// fit decides where records live within a budget of bytes: as planned,
// with more resident where there is room, or cut until it fits. It also
// returns the smallest budget that any cut fits; the residency is nil if the
// budget is smaller.
func (p *program) fit(m Mode, planned *residency, budget int64) (r *residency, smallest int64) {
	cuts := p.cuts(m)
	at := planned.clone()
	smallest = at.bytes()
	if smallest <= budget {
		r = at.clone()
	}
	for _, c := range cuts {
		at.apply(c)
		p.measure(m, at)
		smallest = min(smallest, at.bytes())
		if r == nil && at.bytes() <= budget {
			r = at.clone()
		}
	}
	if r != nil {
		p.grow(m, r, cuts, budget)
	}
	return r, smallest
}

func (r *residency) clone() *residency {
	c := *r
	c.resident, c.banks = slices.Clone(r.resident), slices.Clone(r.banks)
	return &c
}

// grow makes more records resident, in the reverse order of the cuts, while
// they fit. What one makes room for by leaving the ring or the slots, another
// takes in the next round.
func (p *program) grow(m Mode, r *residency, cuts []cut, budget int64) {
	ring := r.ring
	for grown := true; grown; {
		grown = false
		p.measure(m, r)
		for n := range p.ops { // which no cut has, but a plan may stream
			if p.ops[n].kind != doc.KindNorm {
				continue
			}
			for _, i := range p.own(m, int32(n)).records {
				if !r.resident[i] && p.keep(m, r, i, budget) {
					grown = true
				}
			}
		}
		for _, c := range slices.Backward(cuts[1:]) {
			for _, i := range c.records {
				if !r.resident[i] && p.keep(m, r, i, budget) {
					grown = true
				}
			}
		}
	}
	if r.ring > 0 { // the plan's may be longer, to read further ahead
		r.ring = max(r.ring, min(ring, budget-r.weights-r.slots))
	}
}

// keep makes a record resident if the budget allows. The slots of experts
// stay as they are meanwhile; they can only become fewer.
func (p *program) keep(m Mode, r *residency, i int32, budget int64) bool {
	more := *r
	more.weights += p.records[i].bytes
	r.resident[i] = true
	if p.ops[p.records[i].op].kind != doc.KindMoEExpert {
		more.ring = p.ringBytes(m, r)
	}
	if more.bytes() > budget {
		r.resident[i] = false
		return false
	}
	r.weights, r.ring = more.weights, more.ring
	return true
}
