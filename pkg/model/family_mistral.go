package model

import "substrate/pkg/doc"

// mistral is Mistral 7B and its like (MistralConfig): llama with a sliding
// window in every layer, in older ones. GGUF calls it llama.
func mistral() family {
	return family{name: "mistral", config: func(c *config) doc.Architecture {
		a := commonConfig(c)
		a.KVHeads = c.integer("num_key_value_heads", 8, 1, maxHeads)
		a.IntermediateSize = c.integer("intermediate_size", 14336, 1, doc.MaxDimension)
		a.ContextTokens = c.integer("max_position_embeddings", 131072, 1, doc.MaxContextTokens)
		a.SlidingWindow = c.optional("sliding_window", 4096, 1, doc.MaxContextTokens)
		c.only("attention_bias", "false")
		ropeConfig(c, &a, 10000)
		return a
	}}
}
