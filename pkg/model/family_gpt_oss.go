package model

import (
	"strconv"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// gptOSS is gpt-oss (GptOssConfig): attention sinks, a sliding window in every
// other layer, biases everywhere, experts whose SwiGLU is clamped and whose
// weights are in MXFP4.
func gptOSS() family {
	return family{name: "gpt_oss", config: gptOSSConfig, names: func(a *doc.Architecture) naming { return gptOSSNames{arch: a} }}
}

func gptOSSConfig(c *config) doc.Architecture {
	a := commonConfig(c)
	a.AttentionBias = c.boolean("attention_bias", true)
	a.AttentionOBias = a.AttentionBias
	a.AttentionSinks = true
	a.KVHeads = c.integer("num_key_value_heads", 8, 1, maxHeads)
	a.ContextTokens = c.integer("max_position_embeddings", 131072, 1, doc.MaxContextTokens)
	window := c.optional("sliding_window", 128, 1, doc.MaxContextTokens)
	c.windows(&a, window, func(layer int) bool { return layer%2 == 0 })
	a.MoEBias = true
	a.Experts = c.expertCount(128)
	a.ExpertsPerToken = c.integer("num_experts_per_tok", 4, 1, doc.MaxDimension)
	if n := c.integer("experts_per_token", a.ExpertsPerToken, 1, doc.MaxDimension); n != a.ExpertsPerToken {
		c.fail("experts_per_token", "%d, but num_experts_per_tok is %d", n, a.ExpertsPerToken)
	}
	a.ExpertSize = c.integer("intermediate_size", 2880, 1, doc.MaxDimension)
	a.NormTopK = true
	a.SwiGLULimit = c.positive("swiglu_limit", 7)
	a.SwiGLUAlpha = c.positive("swiglu_alpha", 1.702)
	for layer := range a.Layers {
		a.MoELayers = append(a.MoELayers, layer)
	}
	c.integer("initial_context_length", 4096, 1, doc.MaxContextTokens) // of training
	if _, old := c.values["rope_scaling"]; !old {
		if _, set := c.values["rope_parameters"]; !set {
			c.values["rope_parameters"] = jsonio.RawValue(`{"rope_type": "yarn", "factor": 32.0, "truncate": false, "original_max_position_embeddings": 4096}`)
		}
	}
	ropeConfig(c, &a, 150000)
	return a
}

// gptOSSNames are the names of gpt-oss: the experts of a layer are stacked,
// gate and up in one tensor with their rows taking turns. As MXFP4 a tensor is
// [experts, outputs, inputs], as 16-bit numbers [experts, inputs, outputs].
type gptOSSNames struct {
	arch   *doc.Architecture
	blocks bool // MXFP4
}

func (n gptOSSNames) source(op *doc.Op, role string) doc.Source {
	s := doc.Source{Name: huggingFaceName(op, role), Index: -1}
	block := "model.layers." + strconv.Itoa(op.Layer) + "."
	switch op.Kind {
	case doc.KindAttention:
		if role == doc.RoleSinks {
			s.Name = block + "self_attn.sinks"
		}
	case doc.KindMoERouter:
		switch role {
		case doc.RoleWeight:
			s.Name = block + "mlp.router.weight"
		case doc.RoleWeightBias:
			s.Name = block + "mlp.router.bias"
		}
	case doc.KindMoEExpert:
		s.Index = op.Expert
		n.expert(&s, block+"mlp.experts.", role)
	}
	return s
}

func (n gptOSSNames) expert(s *doc.Source, block, role string) {
	width, hidden := n.arch.ExpertSize, n.arch.HiddenSize
	both := doc.SourcePart{Rows: 2 * width, Cols: hidden, Period: 2, Count: 1, InputsFirst: !n.blocks}
	switch role {
	case doc.RoleDown, doc.RoleDownBias:
		s.Name = block + "down_proj"
		if !n.blocks && role == doc.RoleDown {
			s.Part = &doc.SourcePart{Rows: hidden, Cols: width, Period: hidden, Count: hidden, InputsFirst: true}
		}
	case doc.RoleUp, doc.RoleUpBias:
		both.First = 1
		fallthrough
	default:
		s.Name, s.Part = block+"gate_up_proj", &both
	}
	switch role {
	case doc.RoleGateBias, doc.RoleUpBias, doc.RoleDownBias:
		s.Name += "_bias"
		if s.Part != nil {
			s.Part.Cols, s.Part.InputsFirst = 1, false
		}
	default:
		if n.blocks {
			s.Name += blocksSuffix
		}
	}
}
