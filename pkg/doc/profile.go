package doc

import "slices"

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

	RoleSinks      = "sinks" // one logit per head that attends to nothing
	RoleWeightBias = "weight_bias"
	RoleGateBias   = "gate_bias"
	RoleUpBias     = "up_bias"
	RoleDownBias   = "down_bias"

	// Of latent attention. Queries come from the hidden state, or from q_a
	// through q_a_norm. The ups are one matrix per head, below each other.
	RoleQA         = "q_a"
	RoleQANorm     = "q_a_norm"
	RoleQNope      = "q_nope"      // the part of a query without a position
	RoleQRoPE      = "q_rope"      // the part that is rotated
	RoleLatent     = "latent"      // hidden state to latent
	RoleLatentNorm = "latent_norm" // of the latent
	RoleKRoPE      = "k_rope"      // the rotated part of the one key
	RoleKUp        = "k_up"        // q_nope to a query of latents: [heads*kv_rank, nope_dim]
	RoleVUp        = "v_up"        // latent to value: [heads*value_dim, kv_rank]
)

// Profile describes a model from its headers alone: what ops it has, their
// shapes, and where their tensors are. It holds no weights and no
// measurements.
type Profile struct {
	Format       string       `json:"format"`
	Synthetic    bool         `json:"synthetic,omitzero"`
	ModelID      string       `json:"model_id"`
	Family       string       `json:"family"` // "llama", "qwen3_moe": model_type of config.json
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
	IntermediateSize int         `json:"intermediate_size,omitzero"` // dense MLP width; 0 if no layer is dense
	VocabSize        int         `json:"vocab_size"`
	ContextTokens    int         `json:"context_tokens"` // the model's limit
	NormEps          float64     `json:"norm_eps"`
	TiedEmbedding    bool        `json:"tied_embedding"`
	QKNorm           bool        `json:"qk_norm"` // RMS norm of every q and k head before rope
	AttentionBias    bool        `json:"attention_bias"`
	AttentionOBias   bool        `json:"attention_o_bias"`
	RoPE             RoPE        `json:"rope"`
	Experts          int         `json:"experts,omitzero"` // per MoE layer
	ExpertsPerToken  int         `json:"experts_per_token,omitzero"`
	ExpertSize       int         `json:"expert_size,omitzero"` // width of one expert
	NormTopK         bool        `json:"norm_top_k,omitzero"`  // renormalise the top-k router weights
	MoELayers        []int       `json:"moe_layers,omitempty"` // ascending; every other layer is dense
	BOS              int         `json:"bos_token_id"`         // -1: none
	EOS              []int       `json:"eos_token_ids"`
	SlidingWindow    int         `json:"sliding_window,omitzero"`   // positions that a query sees, its own among them; 0: all
	WindowLayers     []int       `json:"window_layers,omitzero"`    // ascending; the layers with a sliding window; empty: every one
	AttentionSinks   bool        `json:"attention_sinks,omitzero"`  // softmax over one learned logit more per head
	AttentionScale   float64     `json:"attention_scale,omitzero"`  // times head_dim^-1/2 is the scale of attention; 0: 1
	Latent           *Latent     `json:"latent,omitzero"`           // multi-head latent attention; kv_heads is then 1
	MoEBias          bool        `json:"moe_bias,omitzero"`         // router and experts have biases
	SwiGLULimit      float64     `json:"swiglu_limit,omitzero"`     // experts clamp gate and up; 0: plain SwiGLU
	SwiGLUAlpha      float64     `json:"swiglu_alpha,omitzero"`     // and compute gate*sigmoid(alpha*gate)*(up+1)
	SharedSize       int         `json:"shared_size,omitzero"`      // width of the shared experts together; 0: none
	RouteGroups      int         `json:"route_groups,omitzero"`     // groups of neighbouring experts; 0: no groups
	RouteTopGroups   int         `json:"route_top_groups,omitzero"` // that may serve one token
	RouteScale       float64     `json:"route_scale,omitzero"`      // of the router's weights; 0: 1
	Extra            Annotations `json:"extra,omitempty"`           // keys of config.json that do not change the maths, kept for people
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

// Latent holds the sizes of multi-head latent attention (DeepSeek-V2,
// arXiv:2405.04434): what is cached of a token is one latent and one rotated
// key for all heads. The head_dim of queries and keys is nope_dim + rope_dim.
type Latent struct {
	QRank    int `json:"q_rank,omitzero"` // of the queries' own latent; 0: none
	KVRank   int `json:"kv_rank"`
	NoPEDim  int `json:"nope_dim"`
	RoPEDim  int `json:"rope_dim"`
	ValueDim int `json:"value_dim"`
}

// Window is the number of positions that a query of a layer sees; 0: all.
func (a *Architecture) Window(layer int) int {
	if len(a.WindowLayers) > 0 && !slices.Contains(a.WindowLayers, layer) {
		return 0
	}
	return a.SlidingWindow
}

// RoPEDim is the number of dimensions of a head that are rotated.
func (a *Architecture) RoPEDim() int {
	if a.Latent != nil {
		return a.Latent.RoPEDim
	}
	return a.HeadDim
}

// CacheDim is the length of a key of one head in the KV cache, and of a value:
// the first numbers of its key in latent attention, where no values are kept.
func (a *Architecture) CacheDim() (key, value int) {
	if l := a.Latent; l != nil {
		return l.KVRank + l.RoPEDim, l.KVRank
	}
	return a.HeadDim, a.HeadDim
}

// CacheValues is the count of numbers that the KV cache keeps of a token and
// layer.
func (a *Architecture) CacheValues() int64 {
	key, value := a.CacheDim()
	if a.Latent != nil {
		value = 0
	}
	return int64(a.KVHeads) * int64(key+value)
}

// RoPE holds the rotary embedding's parameters. Rotation pairs dimension i
// with i + HeadDim/2 (the Hugging Face order).
type RoPE struct {
	Theta float64 `json:"theta"`
	Type  string  `json:"type"` // "default", "linear", "llama3", "yarn"
	// Factor divides positions ("linear") or the low frequencies ("llama3",
	// "yarn").
	Factor          float64 `json:"factor,omitzero"`
	LowFreqFactor   float64 `json:"low_freq_factor,omitzero"`
	HighFreqFactor  float64 `json:"high_freq_factor,omitzero"`
	OriginalContext int     `json:"original_context_tokens,omitzero"`
	// Of yarn: dimensions that turn more often than BetaFast times in the
	// original context are kept, those below BetaSlow divided, with a ramp
	// between; Truncate widens it to whole dimensions.
	BetaFast float64 `json:"beta_fast,omitzero"`
	BetaSlow float64 `json:"beta_slow,omitzero"`
	Truncate bool    `json:"truncate,omitzero"`
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
	Keep   bool   `json:"keep,omitzero"`
	DType  string `json:"dtype"`  // of the source: "f32", "f16", "bf16", "q4_1" ...
	Source Source `json:"source"` // where the values are
}

// Source locates a tensor in the checkpoint.
type Source struct {
	Name string `json:"name"`
	// Permute is "llama_qk" where GGUF rows must be put back into the Hugging
	// Face order; "rope_pairs" where rows are to be rotated as halves but are
	// kept as neighbouring pairs; empty otherwise.
	Permute string `json:"permute,omitempty"`
	// Part says which part of the named tensor this is, if not all of it.
	Part *SourcePart `json:"part,omitzero"`
	// Index selects one matrix of a stacked tensor [experts, rows, cols];
	// -1 for a whole tensor.
	Index int `json:"index"`
}

// SourcePart cuts a tensor out of a larger one of [Rows, Cols], outputs and
// inputs; Cols is 1 for a vector. Of every Period rows it takes Count, those
// from First on.
type SourcePart struct {
	Rows   int `json:"rows"`
	Cols   int `json:"cols"`
	Period int `json:"period"` // divides rows
	First  int `json:"first"`
	Count  int `json:"count"`
	// InputsFirst says that the checkpoint keeps the larger one as
	// [Cols, Rows].
	InputsFirst bool `json:"inputs_first,omitzero"`
	// Transposed says that the tensor is the transposes of the pieces of Count
	// rows, below each other.
	Transposed bool `json:"transposed,omitzero"`
}

// OpIDs of ops outside the blocks.
const (
	OpEmbedding = "embedding"
	OpFinalNorm = "final_norm"
	OpLMHead    = "lm_head"
)
