package model

import "substrate/pkg/doc"

// llama is Llama 2 and 3, and the many models of the same form (LlamaConfig).
func llama() family {
	return family{
		name: "llama",
		config: func(c *config) doc.Architecture {
			a := commonConfig(c)
			a.AttentionBias = c.boolean("attention_bias", false)
			a.AttentionOBias = a.AttentionBias
			a.KVHeads = c.integer("num_key_value_heads", a.Heads, 1, maxHeads)
			a.IntermediateSize = c.required("intermediate_size")
			a.ContextTokens = c.integer("max_position_embeddings", 2048, 1, doc.MaxContextTokens)
			c.only("mlp_bias", "false")
			c.onlyFull(a.Layers)
			ropeConfig(c, &a, 10000)
			return a
		},
		gguf: "llama",
		ggufArchitecture: func(c *ggufConfig) doc.Architecture {
			a := c.common()
			if n := c.integer("expert_count", 0, 0); n > 0 {
				c.fail("llama.expert_count", "%d: llama with experts (Mixtral) is not supported", n)
			}
			c.integer("expert_used_count", 0, 0)
			a.IntermediateSize = c.integer("feed_forward_length", -1, 1)
			c.biases(&a)
			return a
		},
	}
}
