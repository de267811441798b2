package model

import "substrate/pkg/doc"

// qwen2 is Qwen2 and Qwen2.5 (Qwen2Config): llama with biases on q, k and v.
func qwen2() family {
	return family{
		name: "qwen2",
		config: func(c *config) doc.Architecture {
			a := commonConfig(c)
			a.AttentionBias = true
			a.KVHeads = c.integer("num_key_value_heads", min(32, a.Heads), 1, maxHeads)
			a.IntermediateSize = c.integer("intermediate_size", 22016, 1, doc.MaxDimension)
			a.ContextTokens = c.integer("max_position_embeddings", 32768, 1, doc.MaxContextTokens)
			c.only("use_mrope", "false")
			c.qwenWindow(&a)
			ropeConfig(c, &a, 10000)
			return a
		},
		gguf: "qwen2",
		ggufArchitecture: func(c *ggufConfig) doc.Architecture {
			a := c.common()
			a.AttentionBias = true
			a.IntermediateSize = c.integer("feed_forward_length", -1, 1)
			return a
		},
	}
}
