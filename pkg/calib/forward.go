package calib

import (
	"fmt"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// A stage is one update of the residual stream: the embedding, a layer's
// attention, a layer's MLP or mixture of experts, and the head. Between
// stages the residual stream is all the state of a step, so that a branch may
// start at any of them.
type stage struct {
	kind    doc.Kind // embedding, attention, mlp_dense, moe_router, lm_head
	layer   int
	op      int // index of the op; of the router for moe_router; of final_norm for lm_head
	experts int // index of the first expert, for moe_router
	shared  int // index of the shared experts, for moe_router; -1: none
	head    int // index of lm_head, for lm_head
}

// stages splits a profile's ops.
func stages(p *doc.Profile) ([]stage, error) {
	var out []stage
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case doc.KindEmbedding, doc.KindAttention, doc.KindMLPDense, doc.KindMoERouter:
			out = append(out, stage{kind: op.Kind, layer: op.Layer, op: i, experts: -1, shared: -1, head: -1})
		case doc.KindMoEExpert:
			s := &out[len(out)-1]
			if s.kind != doc.KindMoERouter || s.layer != op.Layer {
				return nil, fmt.Errorf("op %s: an expert outside its router's layer", op.ID)
			}
			if s.experts < 0 {
				s.experts = i
			}
		case doc.KindMoEShared:
			s := &out[len(out)-1]
			if s.kind != doc.KindMoERouter || s.layer != op.Layer {
				return nil, fmt.Errorf("op %s: shared experts outside their router's layer", op.ID)
			}
			s.shared = i
		case doc.KindMoEDispatch:
		case doc.KindNorm:
			out = append(out, stage{kind: doc.KindLMHead, layer: -1, op: i, experts: -1, shared: -1, head: -1})
		case doc.KindLMHead:
			s := &out[len(out)-1]
			if s.kind != doc.KindLMHead {
				return nil, fmt.Errorf("op %s: the head must follow the final norm", op.ID)
			}
			s.head = i
		default:
			return nil, fmt.Errorf("op %s: kind %q is not measured", op.ID, op.Kind)
		}
	}
	return out, nil
}

// Lookup supplies the weights of an op by its index in the profile. A tied
// lm_head is asked for under its own index.
type Lookup func(op int) *arch.Weights

// Forward runs teacher-forced steps: a whole sequence at once, with logits for
// every position.
type Forward struct {
	B      backend.Backend
	G      *arch.Graph
	p      *doc.Profile
	stages []stage
	// Routed, if set, sees each MoE layer's routes.
	Routed func(layer int, r *arch.Routes) error
}

// NewForward makes a forward pass for sequences of up to tokens, with a KV
// cache of kvType.
func NewForward(b backend.Backend, p *doc.Profile, tokens int, kvType string) (*Forward, error) {
	return newForward(b, p, tokens, tokens, kvType)
}

// newForward is NewForward where only some rows go through the head at a time.
func newForward(b backend.Backend, p *doc.Profile, tokens, logitRows int, kvType string) (*Forward, error) {
	st, err := stages(p)
	if err != nil {
		return nil, err
	}
	g, err := arch.New(b, &p.Architecture, arch.Options{Context: tokens, KVType: kvType, Chunk: tokens, LogitRows: min(tokens, logitRows)})
	if err != nil {
		return nil, err
	}
	return &Forward{B: b, G: g, p: p, stages: st}, nil
}

// Run computes the whole sequence ids from stage from on; the residual stream
// must already hold that stage's input unless from is 0. before, if set, is
// called ahead of every stage.
func (f *Forward) Run(ids []int32, from int, w Lookup, before func(stage int)) error {
	return f.step(ids, 0, from, w, before)
}

// step is Run for ids at positions pos, pos+1, ... of the sequence.
func (f *Forward) step(ids []int32, pos, from int, w Lookup, before func(stage int)) error {
	if err := f.G.Begin(ids, pos); err != nil {
		return err
	}
	for i := from; i < len(f.stages); i++ {
		if before != nil {
			before(i)
		}
		if err := f.run(&f.stages[i], w); err != nil {
			return err
		}
	}
	return f.B.Sync()
}

func (f *Forward) run(s *stage, w Lookup) error {
	g := f.G
	switch s.kind {
	case doc.KindEmbedding:
		g.Embed(w(s.op))
	case doc.KindAttention:
		g.Attention(s.layer, w(s.op))
	case doc.KindMLPDense:
		g.MLP(w(s.op))
	case doc.KindMoERouter:
		routes, err := g.Route(w(s.op))
		if err != nil {
			return err
		}
		if f.Routed != nil {
			if err := f.Routed(s.layer, routes); err != nil {
				return err
			}
		}
		for _, e := range routes.Experts {
			g.Expert(e, w(s.experts+int(e)))
		}
		g.RunExperts()
		g.Combine()
		if s.shared >= 0 {
			g.Shared(w(s.shared))
		}
	case doc.KindLMHead:
		g.FinalNorm(w(s.op))
		g.Head(w(s.head))
	}
	return nil
}
