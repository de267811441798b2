package run

import (
	"context"
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
	"substrate/pkg/trace"
)

// step computes some tokens at positions pos, pos+1, ... through all ops, in
// topological order. Final norm and head run only if logits are wanted.
func (r *Run) step(ctx context.Context, ids []int32, pos int, logits bool) error {
	r.stepCount++
	r.reads.step, r.reads.wait = 0, 0
	if err := r.graph.Begin(ids, pos); err != nil {
		return err
	}
	for _, n := range r.program.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.op(ctx, n, logits); err != nil {
			return fmt.Errorf("op %s: %w", r.program.ops[n].id, err)
		}
	}
	return r.backend.Sync()
}

// op runs one op of a step: its weights, its kernel, what watches it.
func (r *Run) op(ctx context.Context, n int32, logits bool) error {
	o := &r.program.ops[n]
	entry := r.entry[n]
	tail := o.kind == doc.KindNorm || o.kind == doc.KindLMHead
	if tail && !logits {
		if entry >= 0 && o.owner == n {
			r.ring.skip()
		}
		return nil
	}
	start, waited := r.reads.clock.Now(), r.reads.wait
	if entry >= 0 && !r.held {
		if err := r.ring.acquire(ctx, entry); err != nil {
			return err
		}
	}
	w, tier := r.own[n], r.program.ownTier(r.mode, n)
	if a := &r.active[o.owner]; a.weights != nil {
		w, tier = a.weights, a.tier
	}
	if err := r.kernel(ctx, o, w); err != nil {
		return err
	}
	if entry >= 0 {
		// A streamed embedding that the head shares stays for the next step,
		// which begins with it.
		if r.held = o.owner != n; !r.held {
			if err := r.backend.Sync(); err != nil {
				return err
			}
			r.ring.release()
		}
	}
	r.served(n, tier, 1)
	r.observe(n)
	if r.opt.Trace.Wants(trace.Full) {
		head := r.reads.head()
		r.opLine = doc.OpLine{TraceHead: head, Op: o.id, Tier: tier, TimeNs: head.TNs - int64(start), WaitNs: r.reads.wait - waited}
		r.opt.Trace.Op(&r.opLine)
	}
	return nil
}

// kernel computes an op. A router's step takes its experts along.
func (r *Run) kernel(ctx context.Context, o *op, w *arch.Weights) error {
	switch o.kind {
	case doc.KindEmbedding:
		r.graph.Embed(w)
	case doc.KindAttention:
		r.graph.Attention(o.layer, w)
	case doc.KindMLPDense:
		r.graph.MLP(w)
	case doc.KindMoERouter:
		return r.moe(ctx, o.layer, w)
	case doc.KindNorm:
		r.graph.FinalNorm(w)
	case doc.KindLMHead:
		r.graph.Head(w)
	}
	return nil
}

// served notes what ran in decode: the records of an op's tier, weighted by
// gate mass.
func (r *Run) served(n int32, tier int, mass float64) {
	if !r.decoding {
		return
	}
	o := &r.program.ops[n]
	bytes, weights := o.tiers[tier].bytes, o.params
	if o.kind == doc.KindEmbedding { // one row of its matrix
		bytes /= int64(r.program.arch.VocabSize)
		weights /= int64(r.program.arch.VocabSize)
	}
	r.needed += bytes
	r.servedBits += mass * 8 * float64(bytes)
	r.servedWeights += mass * float64(weights)
}
