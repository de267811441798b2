package run

import (
	"context"
	"fmt"
	"time"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
	"substrate/pkg/trace"
)

// step computes some tokens at positions pos, pos+1, ... through all ops, in
// topological order. Final norm and head run only if logits are wanted.
func (r *Run) step(ctx context.Context, ids []int32, pos int, logits bool) error {
	r.stepCount++
	r.reads.step, r.reads.wait = 0, 0
	r.began = r.reads.clock.Now()
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
			return r.ring.skip()
		}
		return nil
	}
	start, waited := r.reads.clock.Now(), r.reads.wait
	if err := r.raise(ctx, o.owner); err != nil {
		return err
	}
	w, tier := r.own[n], r.program.ownTier(r.mode, n)
	if a := &r.active[o.owner]; a.weights != nil {
		w, tier = a.weights, a.tier
	}
	coarse := false
	if entry >= 0 && !r.held {
		var err error
		if coarse, err = r.acquire(ctx, n, tier); err != nil {
			return err
		}
		if coarse {
			w = r.skeleton[n]
		}
	}
	if err := r.kernel(ctx, n, w); err != nil {
		return err
	}
	if entry >= 0 && !coarse {
		// A streamed embedding that the head shares stays for the next step,
		// which begins with it.
		if r.held = o.owner != n; !r.held {
			if err := r.backend.Sync(); err != nil {
				return err
			}
			if err := r.ring.release(); err != nil {
				return err
			}
		}
	}
	if coarse {
		r.servedSkeleton(n, 1)
	} else {
		r.served(n, tier, 1)
	}
	if err := r.observe(n); err != nil {
		return err
	}
	head := r.reads.head()
	if r.decoding && r.forecast.known() {
		r.monitor.RecordOp(r.forecast.op[n]+o.tiers[tier].computeNs-r.program.own(r.mode, n).computeNs, head.TNs-int64(start))
	}
	if r.opt.Trace.Wants(trace.Full) {
		r.opLine = doc.OpLine{TraceHead: head, Op: o.id, Tier: tier, TimeNs: head.TNs - int64(start), WaitNs: r.reads.wait - waited}
		r.opt.Trace.Op(&r.opLine)
	}
	return nil
}

// acquire waits for an op's records in the ring. In mode fastest it may give
// the visit up at its deadline, and reports that the op runs on its skeleton.
func (r *Run) acquire(ctx context.Context, n int32, tier int) (coarse bool, err error) {
	planned := r.program.ops[n].tiers[tier].fallback
	arrived, err := r.ring.acquire(ctx, r.entry[n], planned.until(r.deadline(n)))
	if err != nil || arrived {
		return false, err
	}
	switch r.fallBack(n, tier, planned, r.skeleton[n] != nil, false) {
	case SkeletonOnly:
		return true, r.ring.leave()
	case AbortToken:
		return false, &DeadlineError{Op: r.program.ops[n].id, Tier: tier}
	}
	_, err = r.ring.acquire(ctx, r.entry[n], never)
	return false, err
}

// deadline is when an op's records are due, by the run's clock: in decode of
// mode fastest, when the plan's forecast says how long things take.
func (r *Run) deadline(n int32) time.Duration {
	if r.mode != Fastest || !r.decoding || !r.forecast.known() {
		return never
	}
	return r.began + time.Duration(r.forecast.due[n])
}

// fallBack decides what an op does whose records missed their deadline.
func (r *Run) fallBack(n int32, tier int, planned Strategy, skeleton, shared bool) Strategy {
	s := r.fallbacks.Decide(planned, skeleton, shared)
	r.fallbackLine = doc.FallbackLine{TraceHead: r.reads.head(), Op: r.program.ops[n].id, Tier: tier, Strategy: s.String()}
	r.opt.Trace.Fallback(&r.fallbackLine)
	return s
}

// kernel computes op n. A router's step takes its experts along.
func (r *Run) kernel(ctx context.Context, n int32, w *arch.Weights) error {
	o := &r.program.ops[n]
	switch o.kind {
	case doc.KindEmbedding:
		r.graph.Embed(w)
	case doc.KindAttention:
		r.graph.Attention(o.layer, w)
	case doc.KindMLPDense:
		r.graph.MLP(w)
	case doc.KindMoERouter:
		return r.moe(ctx, n, o.layer, w)
	case doc.KindMoEShared:
		r.graph.Shared(w)
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
	r.count(n, r.program.ops[n].tiers[tier].bytes, mass)
}

// servedSkeleton notes an op that ran on what of its own tier is resident.
func (r *Run) servedSkeleton(n int32, mass float64) {
	if !r.decoding {
		return
	}
	var bytes int64
	for _, i := range r.program.own(r.mode, n).records {
		if r.places[i].slab == nil {
			break
		}
		bytes += r.program.records[i].bytes
	}
	r.count(n, bytes, mass)
}

func (r *Run) count(n int32, bytes int64, mass float64) {
	o := &r.program.ops[n]
	weights := o.params
	if o.kind == doc.KindEmbedding { // one row of its matrix
		bytes /= int64(r.program.arch.VocabSize)
		weights /= int64(r.program.arch.VocabSize)
	}
	r.needed += bytes
	r.servedBits += mass * 8 * float64(bytes)
	r.servedWeights += mass * float64(weights)
}
