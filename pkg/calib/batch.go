package calib

import (
	"context"
	"fmt"
	"slices"

	"substrate/pkg/footprint"
)

// Journal remembers what the variants of a measurement scored, so that an
// interrupted one goes on with the same result.
type Journal interface {
	// Find returns what was noted under a name.
	Find(name string, score *VariantScore) (ok bool, err error)
	// Note adds a score; it is there after a crash.
	Note(name string, score *VariantScore) error
}

// VariantScore is what a variant scored, as a journal keeps it.
type VariantScore struct {
	KL     []float64 `json:"kl"`     // by document: sum over its tokens
	Tokens []int     `json:"tokens"` // by document
	Shares []float64 `json:"shares,omitempty"`
}

// defaultVariants is how many variants go through the model together where
// nobody says how much memory there is. An interruption costs one batch.
const defaultVariants = 64

// measure scores variants on data in batches. With fit, codes are fitted to
// what the reference's first pass shows; without, that pass only watches the
// routing.
func (m *measurement) measure(ctx context.Context, data *Data, variants []*variant, fit bool) error {
	pool, err := m.streams(data, variants)
	if err != nil {
		return err
	}
	defer pool.close()
	todo, err := m.unscored(data, variants)
	if err != nil {
		return err
	}
	size, keep := batchSize(len(todo), pool.room())
	var batches [][]*variant
	for at := 0; at < len(todo); at += size {
		batches = append(batches, todo[at:min(at+size, len(todo))])
	}
	stages := len(m.f.stages)
	m.done, m.total = 0, 0
	for _, v := range todo {
		m.total += stages - v.from
	}
	tick := func() {
		m.done++
		m.opt.Progress(m.done, m.total)
	}
	obs, err := newObserver(m.f, m.p, data.Longest())
	if err != nil {
		return err
	}
	obs.routesOnly = !fit
	obs.collectGrams(m.opt.StatsMax, data.Tokens(), m.opt.GEMM)
	first := &sweep{m: m, data: data, pool: pool, observe: obs, keep: map[int]*streams{}, tick: tick}
	for _, b := range slices.Backward(batches) { // the last ones save most
		if b[0].from > 0 && len(first.keep) < keep {
			first.keep[b[0].from] = nil
		}
	}
	if err := first.run(ctx, nil); err != nil {
		return fmt.Errorf("reference run: %w", err)
	}
	m.obs = obs
	if fit {
		m.coder.enc.Stats = obs.stats
	}
	for i, b := range batches {
		s := &sweep{m: m, data: data, pool: pool, tick: tick}
		if kept := first.keep[b[0].from]; kept != nil {
			s.from, s.ref = b[0].from, kept
			if i+1 < len(batches) && batches[i+1][0].from == s.from {
				if s.ref, err = first.copyOf(kept); err != nil {
					return err
				}
			} else {
				delete(first.keep, s.from)
			}
		}
		if err := s.run(ctx, b); err != nil {
			return err
		}
		for _, v := range b {
			if err := m.note(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchSize is how many of n variants go through the model at once with room
// for some streams, and for how many batches the reference's stream can be kept
// from the first pass. Beside those there are the reference's own stream and a
// copy of it.
func batchSize(n, room int) (size, keep int) {
	for size := min(max(n, 1), defaultVariants); size > 0; size-- {
		if batches := (n + size - 1) / size; size+batches+2 <= room {
			return size, batches
		}
	}
	// Memory is short: most of it for variants, and some batches run the
	// reference anew.
	size = max(1, (room-2)*3/4)
	return size, room - 2 - size
}

// streams makes the pool of residual streams that the memory allows.
func (m *measurement) streams(data *Data, variants []*variant) (*streamPool, error) {
	p := newStreamPool(data, m.p.Architecture.HiddenSize, 0, 0, m.opt.SpillDir)
	if m.opt.WorkRAM == 0 {
		p.ram = defaultVariants + 4 + len(variants)/defaultVariants
		return p, nil
	}
	rest := m.opt.WorkRAM - m.stageBytes(data)
	p.ram, p.disk = int(max(0, rest)/p.bytes()), int(m.opt.SpillMax/p.bytes())
	const least = 5 // the reference's, one kept, two variants', one to spare
	if p.room() < least {
		return nil, &WorkRAMError{Need: m.stageBytes(data) + least*p.bytes(), Have: m.opt.WorkRAM}
	}
	return p, nil
}

// A WorkRAMError says that a measurement does not fit the memory it is given.
type WorkRAMError struct{ Need, Have int64 }

func (e *WorkRAMError) Error() string {
	return fmt.Sprintf("--work-ram of %d bytes: measuring this model on this text takes %d", e.Have, e.Need)
}

// ExitCode is that of a "no".
func (e *WorkRAMError) ExitCode() int { return 1 }

// workBase is what the tool takes beside what is counted: code, heap, the
// model's header.
const workBase = 192 << 20

// stageBytes is what a stage takes at most beside residual streams: the
// reference, the widest codes, registers and logits.
func (m *measurement) stageBytes(data *Data) int64 {
	a := &m.p.Architecture
	var most int64
	for i := range m.f.stages {
		var exact, coded int64
		for _, n := range m.f.stages[i].ops(a.Experts) {
			op := &m.p.Ops[owner(m.p, n)]
			e := exactEncoding(op)
			bytes, err := footprint.RecordBytes(op, &e)
			if err != nil {
				continue // loadStage says so
			}
			exact += bytes
			var widest int64
			for l := range m.opt.Levels {
				if ram, _, err := footprint.LevelBytes(op, &m.opt.Levels[l], m.opt.Encodings); err == nil {
					widest = max(widest, ram)
				}
			}
			coded += widest
		}
		most = max(most, exact+coded)
	}
	tokens := int64(m.longest(data))
	registers := 4 * tokens * (6*int64(a.HiddenSize) + 4*int64(a.Heads*a.HeadDim) + 2*int64(a.IntermediateSize) +
		3*int64(a.ExpertsPerToken)*int64(a.HiddenSize+2*a.ExpertSize) + int64(a.Layers)*2*int64(a.KVHeads*a.HeadDim))
	return workBase + most + registers + 4*headRows*4*int64(a.VocabSize)
}

func (m *measurement) longest(data *Data) int {
	n := max(m.data.Longest(), data.Longest())
	for _, other := range []*Data{m.opt.Codes, m.opt.Link} {
		if other != nil {
			n = max(n, other.Longest())
		}
	}
	return n
}

// unscored returns the variants that the journal does not know.
func (m *measurement) unscored(data *Data, variants []*variant) (todo []*variant, err error) {
	for _, v := range variants {
		if m.opt.Journal == nil {
			todo = append(todo, v)
			continue
		}
		var s VariantScore
		ok, err := m.opt.Journal.Find(v.name, &s)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			todo = append(todo, v)
		case len(s.KL) != len(data.Documents) || len(s.Tokens) != len(s.KL) || v.split != nil && len(s.Shares) != len(v.split.ops):
			return nil, fmt.Errorf("the journal has %q for other text", v.name)
		default:
			v.score.docs, v.score.shares = make([]Score, len(s.KL)), s.Shares
			for i := range s.KL {
				v.score.docs[i].KL, v.score.docs[i].Tokens = s.KL[i], s.Tokens[i]
			}
		}
	}
	return todo, nil
}

// note tells the journal, and forgets what only percentiles need.
func (m *measurement) note(v *variant) error {
	for i := range v.score.docs {
		v.score.docs[i].KLs = nil
	}
	if m.opt.Journal == nil {
		return nil
	}
	s := VariantScore{Shares: v.score.shares}
	for i := range v.score.docs {
		s.KL, s.Tokens = append(s.KL, v.score.docs[i].KL), append(s.Tokens, v.score.docs[i].Tokens)
	}
	return m.opt.Journal.Note(v.name, &s)
}
