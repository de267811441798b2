package run

import (
	"context"
	"errors"

	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/store"
)

// OpenPlanned opens a plan to score it: every record lives exactly where the
// plan says, however much memory there is. Cap and environment are not asked,
// since a process that scores holds more than a run. b must be fresh; the run
// closes it.
func OpenPlanned(ctx context.Context, s *store.Store, planName string, b backend.Backend, o Options) (r *Run, err error) {
	defer func() {
		if err != nil && r == nil {
			b.Close()
		}
	}()
	r, start, err := prepare(s, planName, b, o)
	if err != nil {
		return nil, err
	}
	if r.meter, err = mem.NewMeter(); err != nil {
		return nil, err
	}
	r.ledger = r.list(r.planned)
	if err := r.bringUp(ctx, r.planned, start); err != nil {
		return nil, err
	}
	return r, nil
}

// Score runs ids token by token as if the run had picked each of them: the
// first is the prompt, the others are decoded, with slots, tiers and reads as
// Generate has them. see is shown the logits after every token; they are
// overwritten by the next. The result's figures are those of a generation of
// the same tokens.
func (r *Run) Score(ctx context.Context, ids []int32, see func(i int, logits []float32) error) (Result, error) {
	if len(ids) > r.opt.Context {
		return Result{}, &PromptError{Tokens: len(ids), Context: r.opt.Context, Limit: r.program.arch.ContextTokens}
	}
	if len(ids) == 0 {
		return Result{}, errors.New("nothing to score: no tokens")
	}
	r.begin()
	g := &generation{Run: r, prompt: ids[:1], most: len(ids), digest: newDigest()}
	err := g.schedule()
	if err == nil {
		err = g.score(ctx, ids, see)
	}
	r.dropBanks()
	return g.result(MaxTokens), errors.Join(err, r.ring.restart(0))
}

func (g *generation) score(ctx context.Context, ids []int32, see func(i int, logits []float32) error) error {
	for i := range ids {
		start := g.reads.clock.Now()
		if i > 0 {
			if err := g.advance(ctx); err != nil {
				return err
			}
		}
		if err := g.step(ctx, ids[i:i+1], i, true); err != nil {
			return err
		}
		if err := g.graph.Logits(g.logits, 0); err != nil {
			return err
		}
		g.tokens++
		if i+1 < len(ids) {
			g.digest.add(g.logits, ids[i+1])
		}
		if err := see(i, g.logits); err != nil {
			return err
		}
		if ns := int64(g.reads.clock.Now() - start); i > 0 {
			g.decodeNs += ns
			g.assess()
		}
	}
	return nil
}
