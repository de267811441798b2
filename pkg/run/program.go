package run

import (
	"fmt"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/store"
)

// program is a plan bound to a store: every op with its ladder of levels, and
// every record with its place on disk.
//
// It holds on to nothing of the documents that it was made of: a manifest can
// be larger than what a run needs of it.
type program struct {
	arch    *doc.Architecture
	ops     []op
	records []record
	steps   []int32   // ops outside the experts, in the order of a step
	experts [][]int32 // by layer
	shared  []bool    // by layer: it has a shared expert

	files []string // of records, by number
}

// op is an op of the model that owns records or shares another's.
type op struct {
	id     string
	kind   doc.Kind
	layer  int
	expert int // -1 unless moe_expert
	owner  int32
	tiers  []tier
	params int64
}

// tier is a level of an op: its records, skeleton first, as indexes into
// program.records.
type tier struct {
	records []int32
	bytes   int64 // of all of them
	delta   int64 // the plan's peak_ram_delta_bytes

	computeNs int64    // that the plan expects of one token
	fallback  Strategy // of mode fastest
}

// record is a record of the plan.
type record struct {
	id     string
	op     int32
	layout *doc.RecordLayout
	bytes  int64 // raw, as resident
	file   int   // index into program.files
	offset int64
	stored int64 // in the file
	crc    uint32
	zstd   bool
}

// bind makes a program of a plan in a store.
func bind(s *store.Store, plan *store.Plan) (*program, error) {
	m := s.Manifest()
	profile, arch := &m.Profile, m.Profile.Architecture
	p := &program{arch: &arch, files: make([]string, len(m.Files))}
	layouts := make(map[int]*doc.RecordLayout)
	byRecord := make(map[string]int32, len(plan.Catalog))
	for i := range plan.Catalog {
		id := plan.Catalog[i].ID
		r := plan.Record(id)
		byRecord[id] = int32(i)
		if layouts[r.Layout] == nil {
			layout := m.Layouts[r.Layout]
			layouts[r.Layout] = &layout
		}
		p.records = append(p.records, record{
			id: strings.Clone(id), layout: layouts[r.Layout], bytes: layouts[r.Layout].Bytes,
			file: r.File, offset: r.Offset, stored: r.Bytes, crc: r.CRC32C, zstd: r.Zstd,
		})
		p.files[r.File] = s.File(r.File)
	}
	bundles := make(map[string]*doc.OpBundle, len(plan.OpBundles))
	for i := range plan.OpBundles {
		bundles[plan.OpBundles[i].Op] = &plan.OpBundles[i]
	}
	byOp := make(map[string]int32, len(profile.Ops))
	p.experts, p.shared = make([][]int32, p.arch.Layers), make([]bool, p.arch.Layers)
	for i := range profile.Ops {
		o := &profile.Ops[i]
		if o.Kind == doc.KindMoEDispatch {
			continue // the router's step ends with it
		}
		if o.Kind == doc.KindMoEShared && o.Layer >= 0 && o.Layer < len(p.shared) {
			p.shared[o.Layer] = true
		}
		n := int32(len(p.ops))
		own := op{id: strings.Clone(o.ID), kind: o.Kind, layer: o.Layer, expert: o.Expert, owner: n, params: o.Parameters}
		switch b := bundles[o.ID]; {
		case o.Shares != "":
			owner, ok := byOp[o.Shares]
			if !ok {
				return nil, fmt.Errorf("op %s shares the record of %s, which does not precede it", o.ID, o.Shares)
			}
			own.owner, own.tiers = owner, p.ops[owner].tiers
			own.params = p.ops[owner].params
		case b == nil:
			return nil, fmt.Errorf("op %s of the model has no bundle in the plan", o.ID)
		default:
			for t := range b.Tiers {
				own.tiers = append(own.tiers, p.level(&b.Tiers[t], byRecord, n))
			}
		}
		if err := p.place(&own, n); err != nil {
			return nil, err
		}
		if err := p.checkShapes(&own); err != nil {
			return nil, err
		}
		byOp[o.ID] = n
		p.ops = append(p.ops, own)
	}
	return p, p.complete()
}

// level makes a tier, and claims its records for an op.
func (p *program) level(t *doc.Tier, byRecord map[string]int32, op int32) tier {
	own := tier{delta: t.DeltaBytes, computeNs: t.ComputeNs, fallback: parseStrategy(t.Fallback)}
	for _, id := range t.Requires {
		r := byRecord[id]
		p.records[r].op = op
		own.records = append(own.records, r)
		own.bytes += p.records[r].bytes
	}
	return own
}

// place puts op n into the order of a step, or among its layer's experts.
func (p *program) place(o *op, n int32) error {
	switch o.kind {
	case doc.KindMoEExpert:
		if o.layer < 0 {
			return fmt.Errorf("op %s is an expert of no layer", o.id)
		}
		l := p.experts[o.layer]
		if o.expert != len(l) {
			return fmt.Errorf("op %s is expert %d of layer %d: the experts are not in order", o.id, o.expert, o.layer)
		}
		p.experts[o.layer] = append(l, n)
		return nil
	case doc.KindEmbedding, doc.KindNorm, doc.KindAttention, doc.KindMLPDense, doc.KindMoERouter, doc.KindMoEShared, doc.KindLMHead:
		p.steps = append(p.steps, n)
		return nil
	}
	return &UnsupportedError{Op: o.id, Kind: o.kind}
}

// UnsupportedError is the refusal of an op that runs cannot compute.
type UnsupportedError struct {
	Op   string
	Kind doc.Kind
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("op %s is of kind %s, which sb-run cannot compute", e.Op, e.Kind)
}

// ExitCode is that of a "no".
func (e *UnsupportedError) ExitCode() int { return 1 }

// complete checks that a step has every op it needs, in their order.
func (p *program) complete() error {
	a := p.arch
	type step struct {
		kind  doc.Kind
		layer int
	}
	want := []step{{doc.KindEmbedding, -1}}
	for l := range a.Layers {
		want = append(want, step{doc.KindAttention, l})
		if a.MoE(l) {
			want = append(want, step{doc.KindMoERouter, l})
			if a.SharedSize > 0 {
				want = append(want, step{doc.KindMoEShared, l})
			}
			if len(p.experts[l]) != a.Experts {
				return fmt.Errorf("layer %d has %d experts, want %d", l, len(p.experts[l]), a.Experts)
			}
		} else {
			want = append(want, step{doc.KindMLPDense, l})
		}
	}
	want = append(want, step{doc.KindNorm, -1}, step{doc.KindLMHead, -1})
	for i, n := range p.steps {
		if o := &p.ops[n]; i >= len(want) || o.kind != want[i].kind || o.layer != want[i].layer {
			return fmt.Errorf("op %s of kind %s is out of order", o.id, o.kind)
		}
	}
	if len(p.steps) != len(want) {
		return fmt.Errorf("the model has %d ops outside its experts, want %d", len(p.steps), len(want))
	}
	return nil
}

// ownTier is the tier that an op runs at in a mode.
func (p *program) ownTier(m Mode, n int32) int {
	if m == Exact {
		return len(p.ops[n].tiers) - 1
	}
	return 0
}

// own is the level that an op runs at in a mode.
func (p *program) own(m Mode, n int32) *tier {
	return &p.ops[n].tiers[p.ownTier(m, n)]
}
