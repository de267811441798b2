package doc

// Kind is what an op does.
type Kind string

// Kinds of ops.
const (
	KindEmbedding   Kind = "embedding"
	KindNorm        Kind = "norm"
	KindAttention   Kind = "attention"
	KindMLPDense    Kind = "mlp_dense"
	KindMoERouter   Kind = "moe_router"
	KindMoEExpert   Kind = "moe_expert"
	KindMoEShared   Kind = "moe_shared"
	KindMoEDispatch Kind = "moe_dispatch"
	KindLMHead      Kind = "lm_head"
)

// Roles of an op's tensors. A block's norm belongs to the op that consumes
// it: "norm" of attention is the input norm; "norm" of mlp_dense, moe_router
// is the post-attention norm.
const (
	RoleWeight = "weight" // embedding, lm_head, router matrix, final norm vector
	RoleNorm   = "norm"
	RoleQ      = "q"
	RoleK      = "k"
	RoleV      = "v"
	RoleO      = "o"
	RoleQBias  = "q_bias"
	RoleKBias  = "k_bias"
	RoleVBias  = "v_bias"
	RoleOBias  = "o_bias"
	RoleQNorm  = "q_norm"
	RoleKNorm  = "k_norm"
	RoleGate   = "gate"
	RoleUp     = "up"
	RoleDown   = "down"
)

// Profile describes a model from its headers alone: what ops it has, their
// shapes, and where their tensors are. It holds no weights and no
// measurements.
type Profile struct {
	Format       string       `json:"format"`
	Synthetic    bool         `json:"synthetic,omitempty"`
	ModelID      string       `json:"model_id"`
	Family       string       `json:"family"` // "llama", "qwen3_moe"
	HeaderSHA256 string       `json:"header_sha256,omitempty"`
	Tokenizer    string       `json:"tokenizer_sha256,omitempty"`
	Reference    string       `json:"reference"` // "source bf16", "dequantized Q4_1"; what KL is measured against
	Architecture Architecture `json:"architecture"`
	KVCaches     []KVCache    `json:"kv_caches"` // bytes per token and layer, by cache type
	Parameters   int64        `json:"parameters"`
	Ops          []Op         `json:"ops"` // topological order
	Annotations  Annotations  `json:"annotations,omitempty"`
}

// Architecture is what the forward pass needs beside the weights.
type Architecture struct {
	HiddenSize       int         `json:"hidden_size"`
	Layers           int         `json:"layers"`
	Heads            int         `json:"heads"`
	KVHeads          int         `json:"kv_heads"`
	HeadDim          int         `json:"head_dim"`
	IntermediateSize int         `json:"intermediate_size,omitempty"` // dense MLP width; 0 if no layer is dense
	VocabSize        int         `json:"vocab_size"`
	ContextTokens    int         `json:"context_tokens"` // the model's limit
	NormEps          float64     `json:"norm_eps"`
	TiedEmbedding    bool        `json:"tied_embedding"`
	QKNorm           bool        `json:"qk_norm"` // RMS norm of every q and k head before rope
	AttentionBias    bool        `json:"attention_bias"`
	AttentionOBias   bool        `json:"attention_o_bias"`
	RoPE             RoPE        `json:"rope"`
	Experts          int         `json:"experts,omitempty"` // per MoE layer
	ExpertsPerToken  int         `json:"experts_per_token,omitempty"`
	ExpertSize       int         `json:"expert_size,omitempty"` // width of one expert
	NormTopK         bool        `json:"norm_top_k,omitempty"`  // renormalise the top-k router weights
	MoELayers        []int       `json:"moe_layers,omitempty"`  // ascending; every other layer is dense
	BOS              int         `json:"bos_token_id"`          // -1: none
	EOS              []int       `json:"eos_token_ids"`
	SlidingWindow    int         `json:"sliding_window,omitempty"` // 0: none
	Extra            Annotations `json:"extra,omitempty"`          // keys of config.json that do not change the maths, kept for people
}

// MoE reports whether layer is a mixture-of-experts layer.
func (a *Architecture) MoE(layer int) bool {
	for _, l := range a.MoELayers {
		if l == layer {
			return true
		}
	}
	return false
}

// RoPE holds the rotary embedding's parameters. Rotation pairs dimension i
// with i + HeadDim/2 (the Hugging Face order).
type RoPE struct {
	Theta float64 `json:"theta"`
	Type  string  `json:"type"` // "default", "linear", "llama3"
	// Factor divides positions ("linear") or the low frequencies ("llama3").
	Factor          float64 `json:"factor,omitempty"`
	LowFreqFactor   float64 `json:"low_freq_factor,omitempty"`
	HighFreqFactor  float64 `json:"high_freq_factor,omitempty"`
	OriginalContext int     `json:"original_context_tokens,omitempty"`
}

// KVCache is the cost of one KV cache type.
type KVCache struct {
	Type                  string `json:"type"` // "f32", "f16"
	BytesPerTokenPerLayer int64  `json:"bytes_per_token_per_layer"`
}

// Op is one operation of the model.
type Op struct {
	ID            string   `json:"id"` // "block_5.expert_17"
	Kind          Kind     `json:"kind"`
	Layer         int      `json:"layer"`            // -1 outside the blocks
	Expert        int      `json:"expert"`           // -1 unless moe_expert
	Shares        string   `json:"shares,omitempty"` // id of the op whose record this op uses: a tied lm_head names "embedding"
	Tensors       []Tensor `json:"tensors,omitempty"`
	Parameters    int64    `json:"parameters"`
	FlopsPerToken int64    `json:"flops_per_token"` // of one token that reaches the op
}

// Tensor is one role of an op.
type Tensor struct {
	Role string `json:"role"`
	Rows int    `json:"rows"` // outputs; 1 for a vector
	Cols int    `json:"cols"` // inputs, or the vector's length
	// Keep says that the tensor is stored in 16 bits or more in every plan:
	// norms, biases, routers.
	Keep   bool   `json:"keep,omitempty"`
	DType  string `json:"dtype"`  // of the source: "f32", "f16", "bf16", "q4_1" ...
	Source Source `json:"source"` // where the values are
}

// Source locates a tensor in the checkpoint.
type Source struct {
	Name string `json:"name"`
	// Permute is "llama_qk" where GGUF rows must be put back into the Hugging
	// Face order; empty otherwise.
	Permute string `json:"permute,omitempty"`
	// Index selects one matrix of a stacked tensor [experts, rows, cols];
	// -1 for a whole tensor.
	Index int `json:"index"`
}

// OpIDs of ops outside the blocks.
const (
	OpEmbedding = "embedding"
	OpFinalNorm = "final_norm"
	OpLMHead    = "lm_head"
)
