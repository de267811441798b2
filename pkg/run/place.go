package run

import (
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/stream"
)

// maxSlab bounds one slab of resident records in bytes: devices limit the
// length of a buffer.
const maxSlab = 1 << 30

// place is where a record lives for the whole run.
type place struct {
	slab backend.Slab // nil: nowhere
	at   int64
}

// allocate makes everything that the ledger lists: graph, slabs, and the
// kernel handles of every place.
func (r *Run) allocate(res *residency) (err error) {
	p := r.program
	if r.graph, err = arch.New(r.backend, p.arch, arch.Options{Context: r.opt.Context, KVType: r.opt.KVType, Chunk: r.chunk, LogitRows: 1}); err != nil {
		return err
	}
	r.logits = make([]float32, p.arch.VocabSize)
	r.manager = newResidencyManager(p.records, [heldLines]int64{inWeights: res.weights, inSlots: res.slots, inRing: res.ring, inPool: r.poolBytes})
	experts := make([]int, len(p.experts))
	for l := range p.experts {
		experts[l] = len(p.experts[l])
	}
	r.history = NewExpertHistory(experts)
	if r.places, err = r.placeResidents(res); err != nil {
		return err
	}
	if res.ring > 0 {
		if r.ringSlab, err = r.backend.Alloc(res.ring); err != nil {
			return err
		}
		r.counted.Count(doc.LedgerRing, res.ring)
	}
	if res.slots > 0 {
		if r.slots, err = r.backend.Alloc(res.slots); err != nil {
			return err
		}
		r.counted.Count(doc.LedgerSlots, res.slots)
	}
	r.ring.entries, r.entry = p.layRing(r.mode, res)
	r.ring.reads, r.ring.manager = &r.reads, r.manager
	if r.ringSlab != nil {
		r.ring.memory = r.ringSlab.Bytes()
	}
	if err := r.bindSteps(); err != nil {
		return err
	}
	if err := r.bindExperts(res); err != nil {
		return err
	}
	r.active = make([]activeTier, len(p.ops))
	if r.opt.Verifier != nil && r.mode != Exact {
		if err := r.openPool(); err != nil {
			return err
		}
	}
	if err := r.reads.openFiles(p); err != nil {
		return err
	}
	r.reads.reader = stream.NewReader(stream.Options{
		Workers: r.opt.Workers, Clock: r.opt.Clock, Requests: r.requests(), BytesPerSec: r.opt.bytesPerSec,
	})
	return nil
}

// requests is how many reads can be under way or queued.
func (r *Run) requests() int {
	n := loadDepth
	for i := range r.ring.entries {
		n += len(r.ring.entries[i].parts)
	}
	for i := range r.banks {
		n += len(r.banks[i].slots) * backend.MaxParts
	}
	return n
}

// placeResidents allocates the slabs of resident records and gives each its
// place.
func (r *Run) placeResidents(res *residency) ([]place, error) {
	p := r.program
	places := make([]place, len(p.records))
	for from := 0; from < len(p.records); {
		var size int64
		to := from
		for ; to < len(p.records); to++ {
			if !res.resident[to] {
				continue
			}
			if size > 0 && size+p.records[to].bytes > maxSlab {
				break
			}
			places[to].at = size
			size += p.records[to].bytes
		}
		if size > 0 {
			slab, err := r.backend.Alloc(size)
			if err != nil {
				return nil, err
			}
			r.weights = append(r.weights, slab)
			r.counted.Count(doc.LedgerWeights, size)
			for i := from; i < to; i++ {
				if !res.resident[i] {
					continue
				}
				places[i].slab = slab
				if err := r.manager.Hold(int32(i), inWeights); err != nil {
					return nil, err
				}
			}
		}
		from = to
	}
	return places, nil
}

// part is a record as bound in a slab.
func (p *program) part(record int32, at place) arch.Part {
	return arch.Part{Slab: at.slab, Offset: at.at, Layout: p.records[record].layout}
}

// bindSteps makes the handles of the ops outside the experts, at their places
// for the whole run or in the ring.
func (r *Run) bindSteps() error {
	p := r.program
	r.own, r.skeleton = make([]*arch.Weights, len(p.ops)), make([]*arch.Weights, len(p.ops))
	for _, n := range p.steps {
		o := &p.ops[n]
		if o.owner != n {
			r.own[n], r.skeleton[n] = r.own[o.owner], r.skeleton[o.owner]
			continue
		}
		streamed := 0
		var parts []arch.Part
		for _, i := range p.own(r.mode, n).records {
			parts = append(parts, r.dense(n, i, &streamed))
		}
		w, err := arch.Bind(r.backend, o.kind, parts...)
		if err != nil {
			return fmt.Errorf("op %s: %w", o.id, err)
		}
		r.own[n] = w
		if r.skeleton[n], err = r.bindSkeleton(n); err != nil {
			return fmt.Errorf("op %s: %w", o.id, err)
		}
	}
	return nil
}

// bindSkeleton makes the handles of what is resident of an op's own level, in
// mode fastest and if that is a part of the level; else nil.
func (r *Run) bindSkeleton(n int32) (*arch.Weights, error) {
	own := r.program.own(r.mode, n)
	var parts []arch.Part
	for _, i := range own.records {
		if r.places[i].slab == nil {
			break // residuals add to what is below them
		}
		parts = append(parts, r.program.part(i, r.places[i]))
	}
	if r.mode != Fastest || len(parts) == 0 || len(parts) == len(own.records) {
		return nil, nil
	}
	return arch.Bind(r.backend, r.program.ops[n].kind, parts...)
}

// dense is a record of dense op n at its place: for the whole run, or in the
// ring, where it is the op's next that streams.
func (r *Run) dense(n, record int32, streamed *int) arch.Part {
	at := r.places[record]
	if at.slab == nil {
		at = place{r.ringSlab, r.ring.entries[r.entry[n]].parts[*streamed].at}
		*streamed++
	}
	return r.program.part(record, at)
}

// bindExperts makes the banks, and the handles of experts and slots.
func (r *Run) bindExperts(res *residency) error {
	p := r.program
	r.experts, r.banks = make([][]expert, len(p.experts)), make([]bank, len(p.experts))
	var at int64
	for l, ops := range p.experts {
		if len(ops) == 0 {
			continue
		}
		r.experts[l] = make([]expert, len(ops))
		size := res.banks[l]
		classes := newClasses()
		for e, n := range ops {
			if err := r.bindExpert(&r.experts[l][e], n, size, classes); err != nil {
				return fmt.Errorf("op %s: %w", p.ops[n].id, err)
			}
		}
		b := &r.banks[l]
		*b = bank{layer: l, tier: size.tier, slots: make([]slot, size.slots)}
		if size.slots > 0 {
			b.of, b.may = make([]int32, len(ops)), make([]bool, len(ops))
			for e := range b.of {
				b.of[e], b.may[e] = -1, len(r.experts[l][e].upgrade) > 0
			}
			b.recent = make([]int32, 0, size.slots)
		}
		for i := range b.slots {
			s := &b.slots[i]
			s.at, s.tag = at, -1
			at += size.bytes
			for j := range s.reads {
				s.reads[j] = newRequest()
			}
			for _, c := range classes.list {
				w, err := arch.Bind(r.backend, doc.KindMoEExpert, arch.Part{Slab: r.slots, Offset: s.at + c.at, Layout: c.layout})
				if err != nil {
					return fmt.Errorf("slots of layer %d: %w", l, err)
				}
				s.parts = append(s.parts, w)
			}
		}
		r.missing = make([]int32, 0, max(len(ops), cap(r.missing)))
	}
	return nil
}

// classes are the different ways in which a record lies in a slot.
type classes struct {
	list []class
	of   map[class]int
}

type class struct {
	at     int64
	layout *doc.RecordLayout
}

func newClasses() *classes { return &classes{of: make(map[class]int)} }

func (c *classes) index(k class) int {
	i, ok := c.of[k]
	if !ok {
		i = len(c.list)
		c.of[k] = i
		c.list = append(c.list, k)
	}
	return i
}

// bindExpert works out how an expert's weights come together.
func (r *Run) bindExpert(x *expert, n int32, bank bankSize, c *classes) (err error) {
	p := r.program
	own := p.own(r.mode, n)
	whole := true
	var parts []arch.Part
	for _, i := range own.records {
		whole = whole && r.places[i].slab != nil
		parts = append(parts, p.part(i, r.places[i]))
	}
	if whole {
		if x.whole, err = arch.Bind(r.backend, doc.KindMoEExpert, parts...); err != nil {
			return err
		}
	} else {
		if x.streamed, err = r.expertParts(own, c); err != nil {
			return err
		}
		if x.skeleton, err = r.bindSkeleton(n); err != nil {
			return err
		}
	}
	if bank.slots > 0 && bank.tier == 1 && len(p.ops[n].tiers) > 1 {
		x.upgrade, err = r.expertParts(&p.ops[n].tiers[1], c)
	}
	return err
}

// expertParts lists the records of a level, those that are not resident one
// after another in a slot.
func (r *Run) expertParts(t *tier, c *classes) ([]expertPart, error) {
	var parts []expertPart
	var at int64
	for _, i := range t.records {
		part := expertPart{record: i}
		if r.places[i].slab == nil {
			part.at, part.class = at, c.index(class{at, r.program.records[i].layout})
			at = footprint.Align(at+r.program.records[i].bytes, footprint.RecordAlign)
		} else {
			var err error
			if part.resident, err = arch.Bind(r.backend, doc.KindMoEExpert, r.program.part(i, r.places[i])); err != nil {
				return nil, err
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}
