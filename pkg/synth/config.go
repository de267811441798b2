package synth

import (
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// checkpointConfig is config.json as the families' classes of transformers
// write it. There are no ids of first and last tokens: nothing ends a text.
type checkpointConfig struct {
	Architectures []string `json:"architectures"`
	Synthetic     bool     `json:"sb_synthetic"`
	ModelType     string   `json:"model_type"`
	DType         string   `json:"torch_dtype"`
	HiddenAct     string   `json:"hidden_act"`
	HiddenSize    int      `json:"hidden_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       int      `json:"num_key_value_heads"`
	HeadDim       int      `json:"head_dim"`
	Intermediate  int      `json:"intermediate_size,omitzero"`
	Vocab         int      `json:"vocab_size"`
	Context       int      `json:"max_position_embeddings"`
	NormEps       float64  `json:"rms_norm_eps"`
	RoPETheta     float64  `json:"rope_theta"`
	Tied          bool     `json:"tie_word_embeddings"`
	Bias          bool     `json:"attention_bias"`
	Experts       int      `json:"num_experts,omitzero"`
	TopK          int      `json:"num_experts_per_tok,omitzero"`
	ExpertSize    int      `json:"moe_intermediate_size,omitzero"`
	NormTopK      bool     `json:"norm_topk_prob,omitzero"`
}

func configJSON(p *doc.Profile) ([]byte, error) {
	a := &p.Architecture
	class, dtype := "LlamaForCausalLM", "bfloat16"
	if p.Family == "qwen3_moe" {
		class = "Qwen3MoeForCausalLM"
	}
	switch p.Ops[0].Tensors[0].DType {
	case "f16":
		dtype = "float16"
	case "f32":
		dtype = "float32"
	}
	return jsonio.Marshal(checkpointConfig{
		Architectures: []string{class}, Synthetic: true, ModelType: p.Family, DType: dtype, HiddenAct: "silu",
		HiddenSize: a.HiddenSize, Layers: a.Layers, Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		Intermediate: a.IntermediateSize, Vocab: a.VocabSize, Context: a.ContextTokens, NormEps: a.NormEps,
		RoPETheta: a.RoPE.Theta, Tied: a.TiedEmbedding, Bias: a.AttentionBias,
		Experts: a.Experts, TopK: a.ExpertsPerToken, ExpertSize: a.ExpertSize, NormTopK: a.NormTopK,
	})
}
