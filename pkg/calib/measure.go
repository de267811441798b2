package calib

import (
	"context"
	"fmt"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/plan"
	"substrate/pkg/quant"
)

// MeasureOptions say what is measured.
type MeasureOptions struct {
	Encodings []doc.Encoding
	Levels    []doc.Level
	Threads   int
	// Codes, if not nil, is other text, which codes are fitted to: on the text
	// that they were fitted to they lose less than on any other.
	Codes *Data
	// Link, if not nil, is other text, on which routing is observed and whole
	// plans are measured.
	Link *Data
	// Int8, if not nil, is a backend with int8 activations whose own loss is
	// measured too. It must be fresh.
	Int8 backend.Backend
	// WorkRAM is what all of the measurement may take, in bytes: 0 is what
	// holds the residual streams of 64 variants. SpillMax is what it may put
	// into a temporary file in SpillDir beside.
	WorkRAM, SpillMax int64
	SpillDir          string
	// StatsMax is what the statistics may take beside moments, in bytes: Gram
	// matrices, for gptq.
	StatsMax int64
	// GEMM is what heavy loops of fitting use; nil: backend.PlainGEMM.
	GEMM backend.GEMM
	// Journal, if not nil, remembers what an interrupted measurement found.
	Journal  Journal
	Progress func(done, total int) // in variants times stages
}

// Model is a source that is read tensor by tensor and row by row.
type Model interface {
	Source
	Rows
}

// measurement is one run of sb-calibrate measure.
type measurement struct {
	b         backend.Backend
	p         *doc.Profile
	rows      Rows
	data      *Data
	opt       MeasureOptions
	f         *Forward // the reference's
	int8      *Forward // with int8 activations; nil if they are not measured
	s         scorer
	obs       *observer
	coder     *coder
	sharedOps map[int]bool // ops whose records a later op shares
	done      int          // variants times stages
	total     int

	exactOut, codedOut []float32 // of a layer's experts
}

// Measure builds the table of src: for every group of ops and every level the
// KL that it adds when all else is at the reference. A group is the embedding,
// a layer's attention, a layer's MLP, all experts of a layer, its shared
// experts, or an untied head. The experts' KL is split among them by what their
// codes change at the output of the mixture: see expertShares.
//
// One stage of the model is in memory at a time. A first pass observes the
// reference; then groups and levels go through the model in batches, as many
// at once as there is memory for their residual streams, each from the stage on
// where it differs.
func Measure(ctx context.Context, b backend.Backend, src Model, data *Data, opt MeasureOptions) (*doc.Table, *quant.Stats, error) {
	m, err := newMeasurement(b, src, data, opt)
	if err != nil {
		return nil, nil, err
	}
	t := &doc.Table{
		Format: doc.FormatTable, Synthetic: m.p.Synthetic, Profile: *m.p, Data: []doc.DataPart{data.Part},
		Encodings: opt.Encodings, Levels: opt.Levels, Link: additiveLink(),
	}
	if opt.Codes != nil {
		t.Data = append(t.Data, opt.Codes.Part)
		if err := m.measure(ctx, opt.Codes, nil, true); err != nil {
			return nil, nil, fmt.Errorf("text for codes: %w", err)
		}
	}
	variants := m.itemVariants()
	if err := m.measure(ctx, data, variants, opt.Codes == nil); err != nil {
		return nil, nil, err
	}
	t.Floor, _ = Mean(variants[0].score.docs)
	if err := m.items(t, variants[1:]); err != nil {
		return nil, nil, err
	}
	seen := m.obs.routing
	if opt.Link != nil {
		t.Data = append(t.Data, opt.Link.Part)
		if t.Link, t.Int8KL, err = m.wholePlans(ctx, t, opt.Link); err != nil {
			return nil, nil, fmt.Errorf("whole plans: %w", err)
		}
		seen = m.obs.routing
	}
	a := &m.p.Architecture
	t.Reuse = []doc.ReuseCurve{}
	for _, l := range a.MoELayers {
		t.Reuse = append(t.Reuse, doc.ReuseCurve{
			Layer: l, HitRate: seen[l].reuse(a.ExpertsPerToken), UpgradeRate: seen[l].upgraded(a.ExpertsPerToken, plan.DefaultSlotPeriod, plan.DefaultSlotLead),
		})
	}
	return t, m.coder.enc.Stats, nil
}

func newMeasurement(b backend.Backend, src Model, data *Data, opt MeasureOptions) (*measurement, error) {
	p := src.Profile()
	m := &measurement{b: b, p: p, rows: src, data: data, opt: opt, sharedOps: map[int]bool{},
		s: scorer{vocab: p.Architecture.VocabSize, threads: opt.Threads}}
	for i := range p.Ops {
		if o := owner(p, i); o != i {
			m.sharedOps[o] = true
		}
	}
	longest := m.longest(data)
	var err error
	if m.f, err = newForward(b, p, longest, headRows, "f32"); err != nil {
		return nil, err
	}
	if opt.Int8 != nil {
		if m.int8, err = newForward(opt.Int8, p, longest, headRows, "f32"); err != nil {
			return nil, err
		}
	}
	m.coder = newCoder(opt.Encodings, nil, nil, opt.Threads)
	return m, nil
}

// group is a set of ops that are coded together.
type group struct {
	stage int
	ops   []int
}

func (m *measurement) groups() []group {
	var out []group
	for i, s := range m.f.stages {
		switch s.kind {
		case doc.KindMoERouter:
			g := group{stage: i}
			for e := range m.p.Architecture.Experts {
				g.ops = append(g.ops, s.experts+e)
			}
			out = append(out, g)
			if s.shared >= 0 {
				out = append(out, group{stage: i, ops: []int{s.shared}})
			}
		case doc.KindLMHead:
			if owner(m.p, s.head) == s.head {
				out = append(out, group{stage: i, ops: []int{s.head}})
			}
		default:
			out = append(out, group{stage: i, ops: []int{s.op}})
		}
	}
	return out
}

// itemVariants are, in this order, the reference once more (the numeric floor)
// and every group at every level.
func (m *measurement) itemVariants() []*variant {
	variants := []*variant{{name: "reference", f: m.f, level: func(*doc.Op) *doc.Level { return nil }}}
	for _, g := range m.groups() {
		in := make(map[string]bool, len(g.ops))
		for _, i := range g.ops {
			in[m.p.Ops[i].ID] = true
		}
		for l := range m.opt.Levels {
			level := &m.opt.Levels[l]
			v := &variant{name: m.p.Ops[g.ops[0]].ID + " " + level.ID, from: g.stage, f: m.f, level: func(op *doc.Op) *doc.Level {
				if in[op.ID] {
					return level
				}
				return nil
			}}
			if len(g.ops) > 1 {
				v.split = &g
			}
			variants = append(variants, v)
		}
	}
	return variants
}

// items writes the scores of itemVariants, without the floor's, into a table.
func (m *measurement) items(t *doc.Table, variants []*variant) error {
	items := make([]doc.Item, len(m.p.Ops))
	for gi, g := range m.groups() {
		for li := range m.opt.Levels {
			v := variants[gi*len(m.opt.Levels)+li]
			kl, se := Mean(v.score.docs)
			shares := v.score.shares
			if v.split == nil {
				shares = []float64{1}
			}
			if err := m.share(items, g, &m.opt.Levels[li], kl, se, shares); err != nil {
				return err
			}
		}
	}
	// Ops whose tensors are all kept dense have one level and lose nothing.
	for i := range m.p.Ops {
		op := &m.p.Ops[i]
		if len(op.Tensors) == 0 || op.Shares != "" {
			continue
		}
		if items[i].Op == "" {
			var err error
			if items[i], err = m.kept(op); err != nil {
				return err
			}
		}
		t.Items = append(t.Items, items[i])
	}
	return nil
}

// share records a group's KL with its members by their shares, which add up
// to 1.
func (m *measurement) share(items []doc.Item, g group, level *doc.Level, kl, se float64, shares []float64) error {
	for n, i := range g.ops {
		op := &m.p.Ops[i]
		it := &items[i]
		it.Op = op.ID
		share, source := shares[n], doc.SourceMeasured
		if op.Kind == doc.KindMoEExpert {
			r := &m.obs.routing[op.Layer]
			it.GateMass = r.mass[op.Expert] / float64(r.tokens)
			it.HitShare = float64(r.hits[op.Expert]) / float64(r.tokens)
			source = doc.SourceSplit
		}
		ram, disk, err := footprint.LevelBytes(op, level, m.opt.Encodings)
		if err != nil {
			return err
		}
		it.Levels = append(it.Levels, doc.ItemLevel{
			Level: level.ID, RAMBytes: ram, DiskBytes: disk, KL: share * kl, KLError: share * se, Source: source,
		})
	}
	return nil
}

// kept is the item of an op that every encoding stores alike.
func (m *measurement) kept(op *doc.Op) (doc.Item, error) {
	level := m.opt.Levels[len(m.opt.Levels)-1]
	ram, disk, err := footprint.LevelBytes(op, &level, m.opt.Encodings)
	return doc.Item{Op: op.ID, Levels: []doc.ItemLevel{{
		Level: level.ID, RAMBytes: ram, DiskBytes: disk, Source: doc.SourceMeasured,
	}}}, err
}
