package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// Bounds of what a configuration may ask for, beside those of a profile. They
// are far above every known model and keep a hostile file from filling the
// memory.
const (
	maxConfigBytes = 4 << 20
	maxHeads       = 1 << 16
	maxExpertOps   = 1 << 17
	maxExtraBytes  = 200 // of one harmless value that is kept for people
)

// config is a config.json that is being read. Every key that is asked for is
// taken out; what is left at the end was not understood. The first error
// stays.
type config struct {
	file   string
	prefix string // "rope_parameters." inside that object
	values map[string]jsonio.RawValue
	err    error
}

func newConfig(file, prefix string, text []byte) (*config, error) {
	members, err := jsonio.Members(file, text)
	if err != nil {
		return nil, err
	}
	c := &config{file: file, prefix: prefix, values: make(map[string]jsonio.RawValue, len(members))}
	for _, m := range members {
		// null is how transformers writes "not set".
		if m.Value.Kind() != 'n' {
			c.values[m.Name] = m.Value
		}
	}
	return c, nil
}

func (c *config) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{File: c.file, Offset: -1, Key: c.prefix + key, Reason: fmt.Sprintf(format, args...)}
	}
}

// take removes a key and unmarshals its value into v; false if it is not set
// or not of the type.
func (c *config) take(key string, v any) bool {
	raw, ok := c.values[key]
	if !ok {
		return false
	}
	delete(c.values, key)
	if err := jsonio.UnmarshalLoose("", raw, v); err != nil {
		c.fail(key, "%v", err)
		return false
	}
	return true
}

// integer takes a number in [low, high], fallback if it is not set; a negative
// fallback says that it must be.
func (c *config) integer(key string, fallback, low, high int) int {
	n := fallback
	if !c.take(key, &n) {
		if fallback < 0 {
			c.fail(key, "missing")
		}
		return max(fallback, low)
	}
	if n < low || n > high {
		c.fail(key, "%d: want a number from %d to %d", n, low, high)
		return low
	}
	return n
}

// required takes a dimension that has no default.
func (c *config) required(key string) int { return c.integer(key, -1, 1, doc.MaxDimension) }

func (c *config) boolean(key string, fallback bool) bool {
	b := fallback
	if !c.take(key, &b) {
		return fallback
	}
	return b
}

// positive takes a number above 0, fallback if it is not set; a fallback of 0
// says that it must be.
func (c *config) positive(key string, fallback float64) float64 {
	x := fallback
	if !c.take(key, &x) {
		if fallback == 0 {
			c.fail(key, "missing")
		}
		return fallback
	}
	if !(x > 0) || math.IsInf(x, 0) {
		c.fail(key, "%v: want a number above 0", x)
		return fallback
	}
	return x
}

// tokens takes a token id or a list of them; nil if it is not set.
func (c *config) tokens(key string) []int {
	raw, ok := c.values[key]
	if !ok {
		return nil
	}
	var ids []int
	if raw.Kind() == '[' {
		c.take(key, &ids)
	} else {
		ids = make([]int, 1)
		c.take(key, &ids[0])
	}
	for _, id := range ids {
		if id < 0 || id >= doc.MaxDimension {
			c.fail(key, "token id %d: want 0 to %d", id, doc.MaxDimension-1)
			return nil
		}
	}
	return ids
}

// only takes a key that may have no value but the given ones, as JSON text.
func (c *config) only(key string, want ...string) {
	raw, ok := c.values[key]
	if !ok {
		return
	}
	delete(c.values, key)
	for _, w := range want {
		if jsonio.Equal(raw, jsonio.RawValue(w)) {
			return
		}
	}
	c.fail(key, "%s is not supported, only %s", clip(raw), want[0])
}

// rest fails on the first key that nobody took and that may change the maths,
// and returns the harmless ones with a short scalar value.
func (c *config) rest() doc.Annotations {
	extra := doc.Annotations{}
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		raw := c.values[key]
		if !harmless(key) {
			c.fail(key, "unknown key with value %s might change the maths", clip(raw))
			continue
		}
		var text string
		switch raw.Kind() {
		case '"':
			if jsonio.UnmarshalLoose("", raw, &text) != nil {
				continue
			}
		case 't', 'f', '0':
			text = string(raw)
		}
		if text != "" && len(text) <= maxExtraBytes {
			extra[key] = text
		}
	}
	if len(extra) == 0 {
		return nil
	}
	return extra
}

// clip shortens a value for a message.
func clip(raw jsonio.RawValue) string {
	const limit = 60
	if len(raw) <= limit {
		return string(raw)
	}
	return string(raw[:limit]) + "..."
}

// harmless reports whether a key of config.json leaves the forward pass as it
// is: notes about training, storage, generation and bookkeeping, taken from
// what transformers reads and ignores for these families.
func harmless(key string) bool {
	switch key {
	case "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "architectures", "auto_map",
		"transformers.js_config", "is_llama_config", "unsloth_version", "unsloth_fixed", "mlx_version",
		"torch_dtype", "dtype", "use_cache", "initializer_range", "attention_dropout", "hidden_dropout",
		"resid_pdrop", "embd_pdrop", "router_aux_loss_coef", "router_jitter_noise", "output_router_logits",
		"output_attentions", "output_hidden_states", "return_dict", "torchscript", "chunk_size_feed_forward",
		"pad_token_id", "sep_token_id", "decoder_start_token_id", "pretraining_tp", "_attn_implementation",
		"attn_implementation", "_experts_implementation", "experts_implementation", "_attn_implementation_autoset",
		"_flash_attn_2_enabled", "num_labels", "id2label", "label2id", "problem_type", "finetuning_task",
		"task_specific_params", "tokenizer_class", "prefix", "max_window_layers", "is_decoder", "use_bfloat16",
		"tf_legacy_loss", "tie_encoder_decoder", "gradient_checkpointing", "tp_plan":
		return true
	// Settings of generate, which old versions wrote into config.json.
	case "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
		"diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
		"length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
		"num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
		"forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
		"suppress_tokens", "begin_suppress_tokens":
		return true
	}
	return false
}

// modelConfig is what config.json says.
type modelConfig struct {
	family    string
	arch      doc.Architecture
	synthetic bool
	dtype     dtype // that the weights claim to have
}

// parseConfig reads the text of a config.json. The text of
// generation_config.json, if there is one, has the last word on the tokens
// that end a text, as it has in transformers' generate.
func parseConfig(file string, text, generation []byte) (*modelConfig, error) {
	c, err := newConfig(file, "", text)
	if err != nil {
		return nil, err
	}
	mc := &modelConfig{dtype: bf16}
	if !c.take("model_type", &mc.family) {
		c.fail("model_type", "missing")
	}
	for _, key := range []string{"quantization_config", "compression_config"} {
		if raw, ok := c.values[key]; ok {
			c.fail(key, "checkpoints quantized by other tools are not supported (%s): use the original 16-bit weights", clip(raw))
		}
	}
	var named string
	if c.peek("dtype", &named) || c.peek("torch_dtype", &named) {
		switch named {
		case "float32":
			mc.dtype = f32
		case "float16":
			mc.dtype = f16
		}
	}
	mc.synthetic = c.boolean("sb_synthetic", false)
	switch mc.family {
	case "llama":
		mc.arch = llamaConfig(c)
	case "qwen3_moe":
		mc.arch = qwen3MoEConfig(c)
	default:
		c.fail("model_type", "%q is not supported, only llama and qwen3_moe", mc.family)
	}
	if c.err == nil {
		mc.arch.Extra = c.rest()
	}
	if c.err != nil {
		return nil, c.err
	}
	if generation != nil {
		if mc.arch.EOS, err = generationEOS(generation, mc.arch.EOS); err != nil {
			return nil, err
		}
	}
	return mc, checkArchitecture(file, &mc.arch)
}

// peek unmarshals a value and leaves the key in place.
func (c *config) peek(key string, v any) bool {
	raw, ok := c.values[key]
	return ok && jsonio.UnmarshalLoose("", raw, v) == nil
}

// generationEOS returns the end tokens of a generation_config.json, fallback
// if it has none.
func generationEOS(text []byte, fallback []int) ([]int, error) {
	c, err := newConfig("generation_config.json", "", text)
	if err != nil {
		return nil, err
	}
	if ids := c.tokens("eos_token_id"); ids != nil {
		fallback = ids
	}
	return fallback, c.err
}

// commonConfig reads what the families share.
func commonConfig(c *config) doc.Architecture {
	a := doc.Architecture{
		HiddenSize:    c.required("hidden_size"),
		Layers:        c.integer("num_hidden_layers", -1, 1, doc.MaxLayers),
		Heads:         c.integer("num_attention_heads", -1, 1, maxHeads),
		VocabSize:     c.required("vocab_size"),
		NormEps:       c.positive("rms_norm_eps", 1e-6),
		TiedEmbedding: c.boolean("tie_word_embeddings", false),
		AttentionBias: c.boolean("attention_bias", false),
		BOS:           -1,
	}
	a.AttentionOBias = a.AttentionBias
	if _, ok := c.values["head_dim"]; !ok && a.HiddenSize%a.Heads != 0 {
		c.fail("num_attention_heads", "%d does not divide hidden_size %d", a.Heads, a.HiddenSize)
	}
	a.HeadDim = c.integer("head_dim", max(a.HiddenSize/a.Heads, 1), 1, maxHeads)
	if ids := c.tokens("bos_token_id"); len(ids) > 0 {
		a.BOS = ids[0]
	}
	a.EOS = c.tokens("eos_token_id")
	c.only("hidden_act", `"silu"`, `"swish"`)
	c.only("is_encoder_decoder", "false")
	c.only("add_cross_attention", "false")
	c.only("cross_attention_hidden_size")
	c.only("pruned_heads", "{}")
	c.only("rope_interleaved", "false")
	c.only("mlp_bias", "false")
	c.layerTypes(a.Layers)
	return a
}

// layerTypes takes the list of attention kinds, which must all be full.
func (c *config) layerTypes(layers int) {
	var types []string
	if !c.take("layer_types", &types) {
		return
	}
	if len(types) != layers {
		c.fail("layer_types", "%d entries for %d layers", len(types), layers)
	}
	for i, t := range types {
		if t != "full_attention" {
			c.fail("layer_types", "layer %d is %q, only full_attention is supported", i, t)
		}
	}
}

// llamaConfig reads the keys of transformers' LlamaConfig, with its defaults.
func llamaConfig(c *config) doc.Architecture {
	a := commonConfig(c)
	a.KVHeads = c.integer("num_key_value_heads", a.Heads, 1, maxHeads)
	a.IntermediateSize = c.required("intermediate_size")
	a.ContextTokens = c.integer("max_position_embeddings", 2048, 1, doc.MaxContextTokens)
	a.RoPE = ropeConfig(c, a.ContextTokens)
	return a
}

// qwen3MoEConfig reads the keys of transformers' Qwen3MoeConfig, with its
// defaults.
func qwen3MoEConfig(c *config) doc.Architecture {
	a := commonConfig(c)
	a.QKNorm = true
	a.KVHeads = c.integer("num_key_value_heads", 4, 1, maxHeads)
	a.ContextTokens = c.integer("max_position_embeddings", 32768, 1, doc.MaxContextTokens)
	a.RoPE = ropeConfig(c, a.ContextTokens)
	if raw, ok := c.values["num_local_experts"]; ok { // the name inside transformers v5
		delete(c.values, "num_local_experts")
		if other, both := c.values["num_experts"]; both && !jsonio.Equal(raw, other) {
			c.fail("num_local_experts", "%s, but num_experts is %s", clip(raw), clip(other))
		}
		c.values["num_experts"] = raw
	}
	a.Experts = c.integer("num_experts", 128, 0, doc.MaxExperts)
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
	window := c.integer("sliding_window", 4096, 0, doc.MaxContextTokens)
	if c.boolean("use_sliding_window", false) {
		a.SlidingWindow = window
	}
	return a
}

// checkArchitecture checks how the numbers fit each other, whatever file they
// come from.
func checkArchitecture(file string, a *doc.Architecture) error {
	reason := ""
	switch {
	case a.KVHeads > a.Heads || a.Heads%a.KVHeads != 0:
		reason = fmt.Sprintf("%d attention heads are not a multiple of %d key-value heads", a.Heads, a.KVHeads)
	case a.HeadDim%2 != 0:
		reason = fmt.Sprintf("head dimension %d is odd, rotary embedding pairs dimensions", a.HeadDim)
	case a.ExpertsPerToken > a.Experts:
		reason = fmt.Sprintf("%d experts per token of only %d", a.ExpertsPerToken, a.Experts)
	case a.BOS >= a.VocabSize:
		reason = fmt.Sprintf("bos token %d is outside the vocabulary of %d", a.BOS, a.VocabSize)
	case a.Heads > doc.MaxDimension/a.HeadDim:
		reason = strconv.Itoa(a.Heads) + " heads of " + strconv.Itoa(a.HeadDim) + " are more than any model has"
	case len(a.MoELayers) > maxExpertOps/cmp.Or(a.Experts, 1):
		reason = fmt.Sprintf("%d layers of %d experts are more than any model has", len(a.MoELayers), a.Experts)
	}
	if reason == "" {
		return nil
	}
	return &Error{File: file, Offset: -1, Reason: reason}
}
