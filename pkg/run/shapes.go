package run

import (
	"fmt"

	"substrate/pkg/doc"
)

// shape is a tensor that an op must have.
type shape struct {
	role       string
	rows, cols int
}

// shapes lists the tensors of a kind of op.
func shapes(a *doc.Architecture, kind doc.Kind) []shape {
	h, q, kv := a.HiddenSize, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	switch kind {
	case doc.KindEmbedding, doc.KindLMHead:
		return []shape{{doc.RoleWeight, a.VocabSize, h}}
	case doc.KindNorm:
		return []shape{{doc.RoleWeight, 1, h}}
	case doc.KindMLPDense:
		n := a.IntermediateSize
		return []shape{{doc.RoleNorm, 1, h}, {doc.RoleGate, n, h}, {doc.RoleUp, n, h}, {doc.RoleDown, h, n}}
	case doc.KindMoERouter:
		return []shape{{doc.RoleNorm, 1, h}, {doc.RoleWeight, a.Experts, h}}
	case doc.KindMoEExpert:
		n := a.ExpertSize
		return []shape{{doc.RoleGate, n, h}, {doc.RoleUp, n, h}, {doc.RoleDown, h, n}}
	case doc.KindAttention:
		all := []shape{{doc.RoleNorm, 1, h}, {doc.RoleQ, q, h}, {doc.RoleK, kv, h}, {doc.RoleV, kv, h}, {doc.RoleO, h, q}}
		if a.AttentionBias {
			all = append(all, shape{doc.RoleQBias, 1, q}, shape{doc.RoleKBias, 1, kv}, shape{doc.RoleVBias, 1, kv})
		}
		if a.AttentionOBias {
			all = append(all, shape{doc.RoleOBias, 1, h})
		}
		if a.QKNorm {
			all = append(all, shape{doc.RoleQNorm, 1, a.HeadDim}, shape{doc.RoleKNorm, 1, a.HeadDim})
		}
		return all
	}
	return nil
}

// checkShapes checks that the first record of every tier of an op holds all
// of its tensors and no others, and that the records above add to matrices of
// the same shapes.
func (p *program) checkShapes(o *op) error {
	want := make(map[string]shape)
	for _, s := range shapes(p.arch, o.kind) {
		want[s.role] = s
	}
	for _, t := range o.tiers {
		for i, n := range t.records {
			tensors := p.records[n].layout.Tensors
			for _, have := range tensors {
				s, ok := want[have.Role]
				if !ok {
					return fmt.Errorf("record %s holds a tensor %s, which is none of a %s", p.records[n].id, have.Role, o.kind)
				}
				if have.Rows != s.rows || have.Cols != s.cols {
					return fmt.Errorf("record %s: tensor %s is %d x %d, the architecture makes it %d x %d", p.records[n].id, have.Role, have.Rows, have.Cols, s.rows, s.cols)
				}
			}
			if i == 0 && len(tensors) != len(want) {
				return fmt.Errorf("record %s holds %d tensors of the %d of a %s", p.records[n].id, len(tensors), len(want), o.kind)
			}
		}
	}
	return nil
}
