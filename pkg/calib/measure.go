package calib

import (
	"context"
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// MeasureOptions say what is measured.
type MeasureOptions struct {
	Encodings []doc.Encoding
	Levels    []doc.Level
	Threads   int
	Progress  func(done, total int)
	// Link, if not nil, is other text, on which routing is observed and whole
	// plans are measured.
	Link *Data
	// Int8, if not nil, is a backend with int8 activations whose own loss is
	// measured too. It must be fresh.
	Int8 backend.Backend
}

// measurement is one run of sb-calibrate measure.
type measurement struct {
	b     backend.Backend
	p     *doc.Profile
	data  *Data
	opt   MeasureOptions
	dense *Dense
	f     *Forward
	s     scorer
	obs   *observer
	refs  []reference         // by sequence
	saved [][]backend.Tensor  // by sequence and stage: the stage's input
	coded map[string][]*dense // scratch records by shape, as many as one group needs
	coder *coder

	exactOut, codedOut []float32 // of a layer's experts
}

// Measure builds the table of src: for every group of ops and every level the
// KL that it adds when all else is at the reference. A group is the embedding,
// a layer's attention, a layer's MLP, all experts of a layer, or an untied
// head. The experts' KL is split among them by what their codes change at the
// output of the mixture: see expertShares.
//
// The model is held in memory in float32, with the residual stream between
// any two stages of every sequence, so that a branch starts where it differs.
func Measure(ctx context.Context, b backend.Backend, src Source, data *Data, opt MeasureOptions) (*doc.Table, *quant.Stats, error) {
	m, err := newMeasurement(ctx, b, src, data, opt)
	if err != nil {
		return nil, nil, err
	}
	defer m.free()
	p, stats := m.p, m.coder.enc.Stats
	t := &doc.Table{
		Format: doc.FormatTable, Synthetic: p.Synthetic, Profile: *p, Data: []doc.DataPart{data.Part},
		Encodings: opt.Encodings, Levels: opt.Levels, Link: additiveLink(),
	}
	// The numeric floor: the reference against itself through the same path
	// that measures every branch.
	floor, err := m.branch(0, m.dense.Weights)
	if err != nil {
		return nil, nil, err
	}
	t.Floor, _ = Mean(floor)
	if err := m.items(ctx, t); err != nil {
		return nil, nil, err
	}
	if opt.Int8 != nil {
		if t.Int8KL, err = m.int8(ctx); err != nil {
			return nil, nil, err
		}
	}
	if t.Reuse, err = m.reuseCurves(ctx); err != nil {
		return nil, nil, err
	}
	if opt.Link != nil {
		t.Data = append(t.Data, opt.Link.Part)
		if t.Link, err = m.fitLink(ctx, t); err != nil {
			return nil, nil, fmt.Errorf("whole plans: %w", err)
		}
	}
	return t, stats, nil
}

// newMeasurement loads the model and runs the reference.
func newMeasurement(ctx context.Context, b backend.Backend, src Source, data *Data, opt MeasureOptions) (*measurement, error) {
	p := src.Profile()
	m := &measurement{b: b, p: p, data: data, opt: opt, coded: map[string][]*dense{},
		s: scorer{vocab: p.Architecture.VocabSize, threads: opt.Threads}}
	var err error
	if m.dense, err = LoadDense(ctx, b, src, func(int64, int64) {}); err != nil {
		return nil, err
	}
	longest := data.Longest()
	if opt.Link != nil {
		longest = max(longest, opt.Link.Longest())
	}
	if m.f, err = NewForward(b, p, longest, "f32"); err == nil {
		err = m.reference(ctx)
	}
	if err != nil {
		m.free()
		return nil, err
	}
	stats, err := m.obs.stats()
	if err != nil {
		m.free()
		return nil, err
	}
	m.coder = newCoder(opt.Encodings, denseRows{m.dense}, stats, opt.Threads)
	return m, nil
}

func (m *measurement) free() {
	m.dense.Free()
	for _, ds := range m.coded {
		for _, d := range ds {
			d.slab.Free()
		}
	}
}

// reference runs every sequence at the reference, keeping distributions,
// stage inputs, moments and routing.
func (m *measurement) reference(ctx context.Context) error {
	var err error
	if m.obs, err = newObserver(m.f, m.p, m.data.Longest()); err != nil {
		return err
	}
	m.refs = make([]reference, len(m.data.Sequences))
	m.saved = make([][]backend.Tensor, len(m.data.Sequences))
	for i, seq := range m.data.Sequences {
		if err := ctx.Err(); err != nil {
			return err
		}
		saved := make([]backend.Tensor, len(m.f.stages))
		for s := range saved {
			if s == 0 {
				continue // the embedding reads ids, not the residual stream
			}
			if saved[s], err = m.b.Tensor(len(seq.IDs), m.p.Architecture.HiddenSize); err != nil {
				return err
			}
		}
		m.saved[i] = saved
		err := m.obs.run(seq.IDs, m.dense.Weights, func(s int) {
			if s > 0 {
				m.b.Take(saved[s], m.f.G.Hidden(), 0)
			}
		})
		if err != nil {
			return fmt.Errorf("reference run: %w", err)
		}
		if err := m.s.fetch(m.f, len(seq.IDs)); err != nil {
			return err
		}
		m.s.prepare(&m.refs[i], seq.IDs)
	}
	return nil
}

// branch scores every sequence with w from stage on, by document.
func (m *measurement) branch(stage int, w Lookup) ([]Score, error) {
	docs := make([]Score, len(m.data.Documents))
	for i, seq := range m.data.Sequences {
		if stage > 0 {
			if err := m.f.G.Begin(seq.IDs, 0); err != nil {
				return nil, err
			}
			m.b.Take(m.f.G.Hidden(), m.saved[i][stage], 0)
		}
		if err := m.f.Run(seq.IDs, stage, w, nil); err != nil {
			return nil, err
		}
		if err := m.s.fetch(m.f, len(seq.IDs)); err != nil {
			return nil, err
		}
		m.s.score(&docs[seq.Document], &m.refs[i], seq.IDs)
	}
	return docs, nil
}

// The planner's defaults of slot_period_tokens and slot_lead_tokens.
const slotPeriod, slotLead = 16, 4

// reuseCurves says how experts come back, on text that nothing was fitted to
// where there is such.
func (m *measurement) reuseCurves(ctx context.Context) ([]doc.ReuseCurve, error) {
	a := &m.p.Architecture
	seen := m.obs.routing
	if m.opt.Link != nil && len(a.MoELayers) > 0 {
		seen = newRouting(a)
		f := m.f
		f.Routed = func(layer int, r *arch.Routes) error {
			seen[layer].add(r, f.G.Rows())
			return nil
		}
		defer func() { f.Routed = nil }()
		for _, seq := range m.opt.Link.Sequences {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := f.Run(seq.IDs, 0, m.dense.Weights, nil); err != nil {
				return nil, fmt.Errorf("routing on other text: %w", err)
			}
		}
	}
	curves := []doc.ReuseCurve{}
	for _, l := range a.MoELayers {
		curves = append(curves, doc.ReuseCurve{
			Layer: l, HitRate: seen[l].reuse(a.ExpertsPerToken), UpgradeRate: seen[l].upgraded(a.ExpertsPerToken, slotPeriod, slotLead),
		})
	}
	return curves, nil
}

// int8 measures what int8 activations add to the KL of the whole model in the
// widest codes of the levels: 0 if no level has codes.
func (m *measurement) int8(ctx context.Context) (float64, error) {
	var widest *doc.Encoding
	for i := range m.opt.Encodings {
		if e := &m.opt.Encodings[i]; e.Bits < 16 && !e.Residual && (widest == nil || e.Bits > widest.Bits) {
			widest = e
		}
	}
	if widest == nil {
		return 0, nil
	}
	exact, err := m.whole(ctx, m.b, widest)
	if err != nil {
		return 0, err
	}
	rounded, err := m.whole(ctx, m.opt.Int8, widest)
	return max(0, rounded-exact), err
}

// whole is the KL of all ops in one encoding, through the kernels of b.
func (m *measurement) whole(ctx context.Context, b backend.Backend, e *doc.Encoding) (float64, error) {
	level := &doc.Level{ID: e.ID, Encodings: []string{e.ID}}
	coded, err := LoadCoded(ctx, b, m.p, func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
		return m.coder.records(ctx, op, level)
	})
	defer coded.Free()
	if err != nil {
		return 0, err
	}
	f, err := NewForward(b, m.p, m.data.Longest(), "f32")
	if err != nil {
		return 0, err
	}
	docs := make([]Score, len(m.data.Documents))
	for i, seq := range m.data.Sequences {
		if err := f.Run(seq.IDs, 0, coded.Weights, nil); err != nil {
			return 0, err
		}
		if err := m.s.fetch(f, len(seq.IDs)); err != nil {
			return 0, err
		}
		m.s.score(&docs[seq.Document], &m.refs[i], seq.IDs)
	}
	kl, _ := Mean(docs)
	return kl, nil
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

// items measures every group at every level.
func (m *measurement) items(ctx context.Context, t *doc.Table) error {
	groups := m.groups()
	items := make([]doc.Item, len(m.p.Ops))
	for gi, g := range groups {
		for li := range m.opt.Levels {
			level := &m.opt.Levels[li]
			if err := ctx.Err(); err != nil {
				return err
			}
			w, err := m.code(ctx, g, level)
			if err != nil {
				return err
			}
			docs, err := m.branch(g.stage, w)
			if err != nil {
				return fmt.Errorf("level %s from op %s on: %w", level.ID, m.p.Ops[g.ops[0]].ID, err)
			}
			shares := []float64{1}
			if len(g.ops) > 1 {
				if shares, err = m.expertShares(g, w); err != nil {
					return err
				}
			}
			kl, se := Mean(docs)
			if err := m.share(items, g, level, kl, se, shares); err != nil {
				return err
			}
			m.opt.Progress(gi*len(m.opt.Levels)+li+1, len(groups)*len(m.opt.Levels))
		}
	}
	// Ops whose tensors are all kept dense have one level and lose nothing.
	for i := range m.p.Ops {
		op := &m.p.Ops[i]
		if len(op.Tensors) == 0 {
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

// code returns weights in which the ops of g are at level.
func (m *measurement) code(ctx context.Context, g group, level *doc.Level) (Lookup, error) {
	coded := make(map[int]*dense, len(g.ops))
	used := map[string]int{}
	for _, i := range g.ops {
		op := &m.p.Ops[i]
		shape := shapeKey(op)
		n := used[shape]
		used[shape]++
		if n == len(m.coded[shape]) {
			d, err := newDense(m.b, op)
			if err != nil {
				return nil, err
			}
			m.coded[shape] = append(m.coded[shape], d)
		}
		d := m.coded[shape][n]
		if err := m.coder.code(ctx, d, op, level); err != nil {
			return nil, err
		}
		coded[i] = d
	}
	return func(op int) *arch.Weights {
		if d := coded[owner(m.p, op)]; d != nil {
			return d.weights
		}
		return m.dense.Weights(op)
	}, nil
}

// shapeKey is equal for ops whose float32 records have the same layout.
func shapeKey(op *doc.Op) string {
	key := string(op.Kind)
	for i := range op.Tensors {
		t := &op.Tensors[i]
		key += fmt.Sprintf(" %s:%dx%d", t.Role, t.Rows, t.Cols)
	}
	return key
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
