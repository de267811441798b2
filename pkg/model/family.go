package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// family is what is particular to the models of one model_type.
type family struct {
	name string // model_type of config.json
	// config reads an architecture with the defaults of transformers' class.
	config func(*config) doc.Architecture
	// names of tensors in a Hugging Face folder; nil: the usual ones
	names func(*doc.Architecture) naming
	// gguf is the name in GGUF files, "" if it is not read from there.
	gguf             string
	ggufArchitecture func(*ggufConfig) doc.Architecture
}

// families lists what can be read.
func families() []family {
	return []family{llama(), mistral(), qwen2(), qwen3(), qwen3MoE(), gptOSS(), deepseekV2()}
}

// list writes "a, b and c".
func list(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// modelConfig is what config.json says.
type modelConfig struct {
	family    string
	arch      doc.Architecture
	synthetic bool
	dtype     dtype // that the weights claim to have

	quantization *quantization // nil: none
}

// names is how the tensors of a folder are called.
func (mc *modelConfig) names(t table) naming {
	if mc.quantization != nil && mc.quantization.blocks {
		return gptOSSNames{arch: &mc.arch, blocks: true}
	}
	own := namesOf(mc.family, &mc.arch)
	if mc.quantization != nil && mlxStacked(t) {
		return mlxNames{own}
	}
	return own
}

// namesOf is how transformers calls the tensors of a family.
func namesOf(name string, a *doc.Architecture) naming {
	for _, f := range families() {
		if f.name == name && f.names != nil {
			return f.names(a)
		}
	}
	return huggingFaceNames{}
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
	if i := slices.IndexFunc(families(), func(f family) bool { return f.name == mc.family }); i < 0 {
		var names []string
		for _, f := range families() {
			names = append(names, f.name)
		}
		c.fail("model_type", "%q is not supported, only %s", mc.family, list(names))
	} else {
		mc.quantized(c)
		mc.arch = families()[i].config(c)
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
		BOS:           -1,
	}
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
	return a
}

// expertCount takes the number of experts, whose key has two names.
func (c *config) expertCount(fallback int) int {
	const inside, outside = "num_local_experts", "num_experts"
	if raw, ok := c.values[inside]; ok {
		delete(c.values, inside)
		if other, both := c.values[outside]; both && !jsonio.Equal(raw, other) {
			c.fail(inside, "%s, but %s is %s", clip(raw), outside, clip(other))
		}
		c.values[outside] = raw
	}
	return c.integer(outside, fallback, 0, doc.MaxExperts)
}

// checkArchitecture checks how the numbers fit each other, whatever file they
// come from.
func checkArchitecture(file string, a *doc.Architecture) error {
	reason := ""
	switch {
	case a.KVHeads > a.Heads || a.Heads%a.KVHeads != 0:
		reason = fmt.Sprintf("%d attention heads are not a multiple of %d key-value heads", a.Heads, a.KVHeads)
	case a.RoPEDim()%2 != 0:
		reason = fmt.Sprintf("head dimension %d is odd, rotary embedding pairs dimensions", a.RoPEDim())
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
