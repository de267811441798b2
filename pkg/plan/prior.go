package plan

import (
	"fmt"
	"math"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// priorKLAt4Bits is the KL that a model is taken to lose at 4 bits and groups
// of 64 before anybody measured it, in nats per token: mixture models of 30 B
// parameters lose 0.01 to 0.02 there, small dense ones 0.05 to 0.07. It rises
// fourfold with every bit less (6 dB per bit).
const priorKLAt4Bits = 0.03

// priorError is how far a plan of priors may be off, as a share of its KL.
const priorError = 0.6

// PriorTable stands in for the table of a model that was not measured: sizes
// are exact, losses are priors and say so. Each op loses in proportion to its
// parameters in use per token, attention, shared experts and the head more.
func PriorTable(p *doc.Profile) (*doc.Table, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	t := &doc.Table{
		Format:    doc.FormatTable,
		Synthetic: p.Synthetic,
		Profile:   *p,
		Data:      []doc.DataPart{},
		Items:     []doc.Item{},
		Reuse:     []doc.ReuseCurve{},
		Link:      doc.Link{Source: "additive", Scale: 1, Exponent: 1, Error: priorError},
		Notes:     p.Annotations,
	}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		e := doc.Encoding{Bits: bits, Group: 64, Scale: "bf16", Fit: "lsq", FitVersion: 1}
		e.ID = doc.EncodingID(&e)
		t.Encodings = append(t.Encodings, e)
	}
	t.Encodings = append(t.Encodings, doc.Encoding{ID: "bf16", Bits: 16, Scale: "bf16", Fit: "none"})
	for _, e := range t.Encodings {
		t.Levels = append(t.Levels, doc.Level{ID: e.ID, Encodings: []string{e.ID}})
	}
	t, err := fillPriors(t)
	if err != nil {
		return nil, err
	}
	return t, t.Validate()
}

// fillPriors gives the ops that a table does not have an item with priors: on
// the scale of the losses that were measured, if there are any. The table that
// it is given stays as it is.
func fillPriors(t *doc.Table) (*doc.Table, error) {
	rows := make(map[string]*doc.Item, len(t.Items))
	for i := range t.Items {
		rows[t.Items[i].Op] = &t.Items[i]
	}
	missing := func(op *doc.Op) bool { return len(op.Tensors) > 0 && rows[op.ID] == nil }
	if !slices.ContainsFunc(t.Profile.Ops, func(op doc.Op) bool { return missing(&op) }) {
		return t, nil
	}
	f := newPriors(t)
	f.fit(rows)
	whole := *t
	whole.Items = make([]doc.Item, 0, len(t.Profile.Ops))
	for i := range t.Profile.Ops {
		op := &t.Profile.Ops[i]
		switch {
		case missing(op):
			it, err := f.item(op, i)
			if err != nil {
				return nil, err
			}
			whole.Items = append(whole.Items, it)
		case rows[op.ID] != nil:
			whole.Items = append(whole.Items, *rows[op.ID])
		}
	}
	return &whole, nil
}

// priors are what ops of a model are taken to lose.
type priors struct {
	table *doc.Table
	parts []float64          // of each op in the loss of the model
	bits  map[string]float64 // of each level that is no sum of several records
	scale float64            // of all losses
}

func newPriors(t *doc.Table) *priors {
	f := &priors{table: t, bits: make(map[string]float64, len(t.Levels)), scale: 1}
	encodings := make(map[string]*doc.Encoding, len(t.Encodings))
	for i := range t.Encodings {
		encodings[t.Encodings[i].ID] = &t.Encodings[i]
	}
	for i := range t.Levels {
		if l := &t.Levels[i]; len(l.Encodings) == 1 {
			f.bits[l.ID] = float64(encodings[l.Encodings[0]].LeastBits())
		}
	}
	var sum float64
	f.parts = make([]float64, len(t.Profile.Ops))
	for i := range t.Profile.Ops {
		f.parts[i] = priorWeight(&t.Profile, &t.Profile.Ops[i])
		sum += f.parts[i]
	}
	for i := range f.parts {
		f.parts[i] /= max(sum, 1)
	}
	return f
}

// priorWeight is an op's part in the loss, not normalised.
func priorWeight(p *doc.Profile, op *doc.Op) float64 {
	if !coded(op) {
		return 0
	}
	w := float64(op.Parameters)
	switch op.Kind {
	case doc.KindAttention, doc.KindMoEShared:
		w *= 3
	case doc.KindLMHead:
		w *= 2
	case doc.KindEmbedding:
		w *= 0.5
	case doc.KindMoEExpert:
		w *= float64(p.Architecture.ExpertsPerToken) / float64(p.Architecture.Experts)
	}
	return w
}

// loss is the prior of op i at a level of some bits, in nats per token.
func (f *priors) loss(i int, bits float64) float64 {
	if bits >= 16 {
		return 0
	}
	return f.scale * f.parts[i] * priorKLAt4Bits * math.Pow(4, 4-bits)
}

// fit scales the priors so that those of the measured ops add up to what was
// measured.
func (f *priors) fit(rows map[string]*doc.Item) {
	var seen, prior float64
	for i := range f.table.Profile.Ops {
		it := rows[f.table.Profile.Ops[i].ID]
		if it == nil {
			continue
		}
		for _, l := range it.Levels {
			if bits, ok := f.bits[l.Level]; ok && bits < 16 {
				seen += max(0, l.KL)
				prior += f.loss(i, bits)
			}
		}
	}
	if seen > 0 && prior > 0 {
		f.scale = seen / prior
	}
}

// item is op i with all levels of one record.
func (f *priors) item(op *doc.Op, i int) (doc.Item, error) {
	it := doc.Item{Op: op.ID}
	if a := &f.table.Profile.Architecture; op.Kind == doc.KindMoEExpert {
		it.GateMass = 1 / float64(a.Experts)
		it.HitShare = float64(a.ExpertsPerToken) / float64(a.Experts)
	}
	for j := range f.table.Levels {
		l := &f.table.Levels[j]
		bits, ok := f.bits[l.ID]
		if !ok {
			continue
		}
		ram, disk, err := footprint.LevelBytes(op, l, f.table.Encodings)
		if err != nil {
			return it, &TableError{Op: op.ID, Reason: err.Error()}
		}
		kl := f.loss(i, bits)
		it.Levels = append(it.Levels, doc.ItemLevel{Level: l.ID, RAMBytes: ram, DiskBytes: disk, KL: kl, KLError: kl / 2, Source: doc.SourcePrior})
	}
	if len(it.Levels) == 0 {
		return it, &TableError{Op: op.ID, Reason: "has no item in the table, which has no level of one record to make a prior of: measure it"}
	}
	return it, nil
}

// klSource names where the losses of a table's items come from, and how they
// add up.
func klSource(t *doc.Table) string {
	source, priors := doc.SourceMeasured, 0
	for i := range t.Items {
		if !measured(&t.Items[i]) {
			priors++
		} else if t.Items[i].Levels[0].Source == doc.SourceSynthetic {
			source = doc.SourceSynthetic
		}
	}
	switch priors {
	case 0:
	case len(t.Items):
		source = doc.SourcePrior
	default:
		source += fmt.Sprintf(", priors for %d of %d ops", priors, len(t.Items))
	}
	return source + ", " + t.Link.Source
}
