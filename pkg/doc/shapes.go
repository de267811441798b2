package doc

// Shape is a tensor that an op must have.
type Shape struct {
	Role       string
	Rows, Cols int  // Rows is 1 for a vector
	Keep       bool // as in [Tensor]
}

// Shapes lists the tensors of a kind of op, in the order of a profile.
func (a *Architecture) Shapes(kind Kind) []Shape {
	var s shapes
	h := a.HiddenSize
	switch kind {
	case KindEmbedding, KindLMHead:
		s.matrix(RoleWeight, a.VocabSize, h)
	case KindNorm:
		s.vector(RoleWeight, h)
	case KindAttention:
		s.vector(RoleNorm, h)
		if a.Latent != nil {
			a.latentAttention(&s)
		} else {
			a.attention(&s)
		}
	case KindMLPDense:
		s.vector(RoleNorm, h)
		s.mlp(h, a.IntermediateSize)
	case KindMoEShared:
		s.mlp(h, a.SharedSize)
	case KindMoERouter:
		s.vector(RoleNorm, h)
		s = append(s, Shape{RoleWeight, a.Experts, h, true})
		if a.MoEBias {
			s.vector(RoleWeightBias, a.Experts)
		}
	case KindMoEExpert:
		s.mlp(h, a.ExpertSize)
		if a.MoEBias {
			s.vector(RoleGateBias, a.ExpertSize)
			s.vector(RoleUpBias, a.ExpertSize)
			s.vector(RoleDownBias, h)
		}
	}
	return s
}

func (a *Architecture) attention(s *shapes) {
	h, q, kv := a.HiddenSize, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	s.matrix(RoleQ, q, h)
	s.matrix(RoleK, kv, h)
	s.matrix(RoleV, kv, h)
	s.matrix(RoleO, h, q)
	if a.AttentionBias {
		s.vector(RoleQBias, q)
		s.vector(RoleKBias, kv)
		s.vector(RoleVBias, kv)
	}
	if a.AttentionOBias {
		s.vector(RoleOBias, h)
	}
	if a.QKNorm {
		s.vector(RoleQNorm, a.HeadDim)
		s.vector(RoleKNorm, a.HeadDim)
	}
	if a.AttentionSinks {
		s.vector(RoleSinks, a.Heads)
	}
}

func (a *Architecture) latentAttention(s *shapes) {
	l, h := a.Latent, a.HiddenSize
	from := h // what queries are made of
	if l.QRank > 0 {
		s.matrix(RoleQA, l.QRank, h)
		s.vector(RoleQANorm, l.QRank)
		from = l.QRank
	}
	s.matrix(RoleQNope, a.Heads*l.NoPEDim, from)
	s.matrix(RoleQRoPE, a.Heads*l.RoPEDim, from)
	s.matrix(RoleLatent, l.KVRank, h)
	s.vector(RoleLatentNorm, l.KVRank)
	s.matrix(RoleKRoPE, l.RoPEDim, h)
	s.matrix(RoleKUp, a.Heads*l.KVRank, l.NoPEDim)
	s.matrix(RoleVUp, a.Heads*l.ValueDim, l.KVRank)
	s.matrix(RoleO, h, a.Heads*l.ValueDim)
}

// shapes collects the tensors of an op.
type shapes []Shape

func (s *shapes) matrix(role string, rows, cols int) {
	*s = append(*s, Shape{Role: role, Rows: rows, Cols: cols})
}

func (s *shapes) vector(role string, n int) {
	*s = append(*s, Shape{Role: role, Rows: 1, Cols: n, Keep: true})
}

func (s *shapes) mlp(hidden, width int) {
	s.matrix(RoleGate, width, hidden)
	s.matrix(RoleUp, width, hidden)
	s.matrix(RoleDown, hidden, width)
}
