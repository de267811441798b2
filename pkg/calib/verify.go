package calib

import (
	"context"
	"fmt"
	"math"
	"slices"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/quant"
	"substrate/pkg/run"
)

// Records gives the records of one op at the level to be verified, skeleton
// first. It is called once per op that owns records.
type Records func(ctx context.Context, op *doc.Op) ([]quant.Record, error)

// Coded is a whole model in memory as its records have it, for the kernels
// that will run it.
type Coded struct {
	p     *doc.Profile
	ops   []*codedOp // a tied matrix is its owner's; nil: has no records
	Bytes int64      // of all records
}

// LoadCoded copies the records of every op to slabs.
func LoadCoded(ctx context.Context, b backend.Backend, p *doc.Profile, get Records) (*Coded, error) {
	m := &Coded{p: p, ops: make([]*codedOp, len(p.Ops))}
	for i := range p.Ops {
		op := &p.Ops[i]
		if o := owner(p, i); o != i {
			m.ops[i] = m.ops[o]
			continue
		}
		if len(op.Tensors) == 0 {
			continue
		}
		records, err := get(ctx, op)
		if err != nil {
			return m, err
		}
		if m.ops[i], err = bindRecords(b, op, records); err != nil {
			return m, err
		}
		for _, r := range records {
			m.Bytes += int64(len(r.Bytes))
		}
	}
	return m, nil
}

// Weights is the Lookup of the model.
func (m *Coded) Weights(op int) *arch.Weights {
	if m.ops[op] == nil {
		return nil
	}
	return m.ops[op].weights
}

// Free releases the slabs.
func (m *Coded) Free() {
	for i, c := range m.ops {
		if c != nil && owner(m.p, i) == i {
			c.free()
		}
	}
}

// VerifyOptions say how a model is verified.
type VerifyOptions struct {
	KVType  string
	Threads int
	// Controls are uniform encodings to measure on the same text; their codes
	// are fitted with Stats.
	Controls []doc.Encoding
	Stats    *quant.Stats
	Progress func(done, total int)
}

// Verification is one run of sb-calibrate verify.
type Verification struct {
	Quality   doc.Quality
	Documents []Score // of the subject
	Controls  []doc.VerifyControl
	// Of a run: what it read after the first token of every sequence, and the
	// bits per weight that it served, weighted by gate mass.
	ReadBytesPerToken int64
	BitsServed        float64
}

// Verify scores the model whose records get gives, and uniform controls,
// against src on data. Reference products are computed on exact in float32,
// all others on b: the kernels that will run the model.
func Verify(ctx context.Context, exact, b backend.Backend, src Source, get Records, data *Data, opt VerifyOptions) (*Verification, error) {
	c, err := newComparison(ctx, exact, b, src, data, opt)
	if err != nil {
		return nil, err
	}
	defer c.free()
	m, err := c.load(ctx, get)
	if err != nil {
		return nil, err
	}
	return c.verification(ctx, c.whole(m), m.Bytes)
}

// VerifyRun scores what a run computes, token by token, as Verify scores
// records: its slots hold what they would hold in a generation of the same
// text. bytes is the size of the records of the mode's own levels. b serves
// the controls.
func VerifyRun(ctx context.Context, exact, b backend.Backend, src Source, r *run.Run, bytes int64, data *Data, opt VerifyOptions) (*Verification, error) {
	c, err := newComparison(ctx, exact, b, src, data, opt)
	if err != nil {
		return nil, err
	}
	defer c.free()
	var read, decoded int64
	var bits float64
	v, err := c.verification(ctx, func(ctx context.Context, ids []int32) error {
		c.s.resize(len(ids))
		res, err := r.Score(ctx, ids, func(i int, logits []float32) error {
			copy(c.s.row(i), logits)
			return nil
		})
		n := int64(len(ids) - 1)
		read, decoded, bits = read+res.DecodeReadBytes, decoded+n, bits+float64(n)*res.BitsServed
		return err
	}, bytes)
	if err != nil {
		return nil, err
	}
	v.ReadBytesPerToken, v.BitsServed = read/decoded, bits/float64(decoded)
	return v, nil
}

// comparison compares models with a reference on the same text.
type comparison struct {
	b      backend.Backend
	p      *doc.Profile
	ref    *Dense
	rf, mf *Forward // of the reference and of models in records
	s      scorer
	data   *Data
	opt    VerifyOptions
	models []*Coded
}

func newComparison(ctx context.Context, exact, b backend.Backend, src Source, data *Data, opt VerifyOptions) (c *comparison, err error) {
	c = &comparison{b: b, p: src.Profile(), data: data, opt: opt}
	c.s = scorer{vocab: c.p.Architecture.VocabSize, threads: opt.Threads}
	if c.ref, err = LoadDense(ctx, exact, src, func(int64, int64) {}); err != nil {
		return nil, err
	}
	if c.rf, err = NewForward(exact, c.p, data.Longest(), "f32"); err != nil {
		c.free()
		return nil, err
	}
	if c.mf, err = NewForward(b, c.p, data.Longest(), opt.KVType); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *comparison) free() {
	c.ref.Free()
	for _, m := range c.models {
		m.Free()
	}
}

// load takes a model in records.
func (c *comparison) load(ctx context.Context, get Records) (*Coded, error) {
	m, err := LoadCoded(ctx, c.b, c.p, get)
	c.models = append(c.models, m)
	return m, err
}

// logits leaves the logits of a whole sequence in the scorer.
type logits func(ctx context.Context, ids []int32) error

// whole computes a sequence in one step.
func (c *comparison) whole(m *Coded) logits {
	return func(_ context.Context, ids []int32) error {
		if err := c.mf.Run(ids, 0, m.Weights, nil); err != nil {
			return err
		}
		return c.s.fetch(c.mf, len(ids))
	}
}

// verification scores the subject and the controls.
func (c *comparison) verification(ctx context.Context, subject logits, bytes int64) (*Verification, error) {
	models := []logits{subject}
	for i := range c.opt.Controls {
		m, err := c.load(ctx, Uniform(c.ref, &c.opt.Controls[i], c.opt.Stats, c.opt.Threads))
		if err != nil {
			return nil, err
		}
		models = append(models, c.whole(m))
	}
	scores, err := c.scores(ctx, models)
	if err != nil {
		return nil, err
	}
	v := &Verification{Quality: quality(c.p, bytes, scores[0]), Documents: scores[0]}
	controls := c.models[len(c.models)-len(c.opt.Controls):]
	for i := range c.opt.Controls {
		v.Controls = append(v.Controls, doc.VerifyControl{
			Encoding: c.opt.Controls[i].ID, Quality: quality(c.p, controls[i].Bytes, scores[i+1]),
		})
	}
	slices.SortStableFunc(v.Controls, func(x, y doc.VerifyControl) int { return int(x.Quality.Bytes - y.Quality.Bytes) })
	return v, nil
}

// scores returns, for every model, a score per document.
func (c *comparison) scores(ctx context.Context, models []logits) ([][]Score, error) {
	scores := make([][]Score, len(models))
	for i := range scores {
		scores[i] = make([]Score, len(c.data.Documents))
	}
	var at reference
	for n, seq := range c.data.Sequences {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.rf.Run(seq.IDs, 0, c.ref.Weights, nil); err != nil {
			return nil, fmt.Errorf("reference run: %w", err)
		}
		if err := c.s.fetch(c.rf, len(seq.IDs)); err != nil {
			return nil, err
		}
		c.s.prepare(&at, seq.IDs[1:])
		for i, model := range models {
			if err := model(ctx, seq.IDs); err != nil {
				return nil, err
			}
			c.s.score(&scores[i][seq.Document], &at, seq.IDs[1:])
		}
		c.opt.Progress(n+1, len(c.data.Sequences))
	}
	return scores, nil
}

// Uniform gives every op at one encoding, fitted to the reference m.
func Uniform(m *Dense, e *doc.Encoding, stats *quant.Stats, threads int) Records {
	c := newCoder([]doc.Encoding{*e}, denseRows{m}, stats, threads)
	level := &doc.Level{ID: e.ID, Encodings: []string{e.ID}}
	return func(ctx context.Context, op *doc.Op) ([]quant.Record, error) { return c.records(ctx, op, level) }
}

// quality sums up the scores of documents.
func quality(p *doc.Profile, bytes int64, docs []Score) doc.Quality {
	var q doc.Quality
	q.KL, q.KLError = Mean(docs)
	var tokens, same, flips int
	var nll, refNLL float64
	var kls []float64
	for i := range docs {
		d := &docs[i]
		tokens, same, flips = tokens+d.Tokens, same+d.SameTop, flips+d.ConfidentFlips
		nll, refNLL = nll+d.NLL, refNLL+d.RefNLL
		kls = append(kls, d.KLs...)
	}
	slices.Sort(kls)
	n := float64(tokens)
	q.KLMedian, q.KL999 = percentile(kls, 0.5), percentile(kls, 0.999)
	q.Perplexity = math.Exp(nll / n)
	q.PerplexityDelta = q.Perplexity - math.Exp(refNLL/n)
	q.SameTop, q.ConfidentFlips = float64(same)/n, float64(flips)/n
	q.Bytes, q.BitsPerWeight = bytes, 8*float64(bytes)/float64(p.Parameters)
	return q
}

// percentile is the smallest of the sorted values that at least a share of
// them does not exceed (nearest rank).
func percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// InterpolateUniform is the KL that uniform encodings would have at bytes:
// linear in log KL between the controls on both sides. ok is false outside
// their range.
func InterpolateUniform(controls []doc.VerifyControl, bytes int64) (kl float64, ok bool) {
	for i := 1; i < len(controls); i++ {
		lo, hi := &controls[i-1].Quality, &controls[i].Quality
		if lo.Bytes <= bytes && bytes <= hi.Bytes && lo.Bytes < hi.Bytes && lo.KL > 0 && hi.KL > 0 {
			t := float64(bytes-lo.Bytes) / float64(hi.Bytes-lo.Bytes)
			return math.Exp((1-t)*math.Log(lo.KL) + t*math.Log(hi.KL)), true
		}
	}
	return 0, false
}
