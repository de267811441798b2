package plan

import (
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

// PriorTable stands in for the table of a model that was not measured: sizes
// are exact, KLs are priors and say so. Each op loses in proportion to its
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
		Link:      doc.Link{Source: "additive", Scale: 1, Exponent: 1},
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
	weights, sum := priorWeights(p)
	for i := range p.Ops {
		if len(p.Ops[i].Tensors) == 0 {
			continue
		}
		it, err := priorItem(t, &p.Ops[i], weights[i]/sum)
		if err != nil {
			return nil, err
		}
		t.Items = append(t.Items, it)
	}
	return t, t.Validate()
}

// priorWeights is each op's part in the loss, not normalised.
func priorWeights(p *doc.Profile) (weights []float64, sum float64) {
	weights = make([]float64, len(p.Ops))
	for i := range p.Ops {
		op := &p.Ops[i]
		if !slices.ContainsFunc(op.Tensors, func(t doc.Tensor) bool { return !t.Keep }) {
			continue
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
		weights[i] = w
		sum += w
	}
	return weights, max(sum, 1)
}

func priorItem(t *doc.Table, op *doc.Op, part float64) (doc.Item, error) {
	it := doc.Item{Op: op.ID}
	if a := &t.Profile.Architecture; op.Kind == doc.KindMoEExpert {
		it.GateMass = 1 / float64(a.Experts)
		it.HitShare = float64(a.ExpertsPerToken) / float64(a.Experts)
	}
	for i := range t.Levels {
		ram, disk, err := footprint.LevelBytes(op, &t.Levels[i], t.Encodings)
		if err != nil {
			return it, &TableError{Op: op.ID, Reason: err.Error()}
		}
		kl := 0.0
		if bits := t.Encodings[i].Bits; bits < 16 {
			kl = part * priorKLAt4Bits * math.Pow(4, float64(4-bits))
		}
		it.Levels = append(it.Levels, doc.ItemLevel{Level: t.Levels[i].ID, RAMBytes: ram, DiskBytes: disk, KL: kl, KLError: kl / 2, Source: doc.SourcePrior})
	}
	return it, nil
}
