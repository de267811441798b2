package model

import (
	"slices"

	"substrate/pkg/doc"
)

// qwen3 is the dense Qwen3 (Qwen3Config): a norm on every head of q and k.
func qwen3() family {
	return family{
		name: "qwen3",
		config: func(c *config) doc.Architecture {
			a := qwen3Config(c, 32, 128)
			a.IntermediateSize = c.integer("intermediate_size", 22016, 1, doc.MaxDimension)
			c.qwenWindow(&a)
			return a
		},
		gguf: "qwen3",
		ggufArchitecture: func(c *ggufConfig) doc.Architecture {
			a := c.common()
			a.QKNorm = true
			a.IntermediateSize = c.integer("feed_forward_length", -1, 1)
			c.biases(&a)
			return a
		},
	}
}

// qwen3Config reads what Qwen3 has in common with and without experts;
// headDim 0 is hidden_size / heads.
func qwen3Config(c *config, kvHeads, headDim int) doc.Architecture {
	_, set := c.values["head_dim"]
	a := commonConfig(c)
	if !set && headDim > 0 {
		a.HeadDim = headDim
	}
	a.QKNorm = true
	a.AttentionBias = c.boolean("attention_bias", false)
	a.AttentionOBias = a.AttentionBias
	a.KVHeads = c.integer("num_key_value_heads", kvHeads, 1, maxHeads)
	a.ContextTokens = c.integer("max_position_embeddings", 32768, 1, doc.MaxContextTokens)
	ropeConfig(c, &a, 10000)
	return a
}

// qwen3MoE is Qwen3 with experts (Qwen3MoeConfig).
func qwen3MoE() family {
	return family{
		name: "qwen3_moe",
		config: func(c *config) doc.Architecture {
			a := qwen3Config(c, 4, 0)
			a.Experts = c.expertCount(128)
			a.ExpertsPerToken = c.integer("num_experts_per_tok", 8, 1, doc.MaxDimension)
			a.ExpertSize = c.integer("moe_intermediate_size", 768, 1, doc.MaxDimension)
			a.NormTopK = c.boolean("norm_topk_prob", false)
			step := c.integer("decoder_sparse_step", 1, 1, doc.MaxDimension)
			var dense []int
			c.take("mlp_only_layers", &dense)
			for layer := range a.Layers {
				if a.Experts > 0 && (layer+1)%step == 0 && !slices.Contains(dense, layer) {
					a.MoELayers = append(a.MoELayers, layer)
				}
			}
			intermediate := c.integer("intermediate_size", 6144, 1, doc.MaxDimension)
			if len(a.MoELayers) < a.Layers {
				a.IntermediateSize = intermediate
			}
			if len(a.MoELayers) == 0 {
				a.Experts, a.ExpertsPerToken, a.ExpertSize, a.NormTopK = 0, 0, 0, false
			}
			// Where the window is used, every layer has it.
			c.onlyFull(a.Layers)
			window := c.optional("sliding_window", 4096, 0, doc.MaxContextTokens)
			if c.boolean("use_sliding_window", false) {
				a.SlidingWindow = window
			}
			return a
		},
		gguf:             "qwen3moe",
		ggufArchitecture: ggufQwen3MoE,
	}
}

// ggufQwen3MoE: llama.cpp has every layer as MoE, and always renormalises the
// router's weights.
func ggufQwen3MoE(c *ggufConfig) doc.Architecture {
	a := c.common()
	a.QKNorm = true
	a.NormTopK = true
	a.Experts = c.integer("expert_count", -1, 1)
	a.ExpertsPerToken = c.integer("expert_used_count", -1, 1)
	width := c.integer("feed_forward_length", 0, 0)
	stacked := c.h.tensors["blk.0.ffn_gate_exps.weight"]
	if len(stacked.shape) == 3 && stacked.shape[1] <= doc.MaxDimension { // old converters left the key out
		width = int(stacked.shape[1])
	}
	a.ExpertSize = c.integer("expert_feed_forward_length", max(width, 1), 1)
	c.biases(&a)
	if scale := c.positive("expert_weights_scale", 1); scale != 1 {
		c.fail("qwen3moe.expert_weights_scale", "%v is not supported, only 1", scale)
	}
	if n := c.integer("expert_shared_count", 0, 0); n > 0 {
		c.fail("qwen3moe.expert_shared_count", "%d: shared experts are not supported", n)
	}
	for layer := range min(a.Layers, doc.MaxLayers) {
		a.MoELayers = append(a.MoELayers, layer)
	}
	return a
}
