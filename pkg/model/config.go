package model

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// Bounds of what a configuration may ask for, beside those of a profile. They
// are far above every known model and keep a hostile file from filling the
// memory.
const (
	maxConfigBytes = 4 << 20
	maxHeads       = 1 << 16
	maxRank        = 1 << 15 // ranks and head sizes of latent attention
	maxExpertOps   = 1 << 17
	maxExtraBytes  = 200 // of one harmless value that is kept for people
)

// config is a config.json that is being read. Every key that is asked for is
// taken out; what is left at the end was not understood. The first error
// stays. A key whose value is null counts as not set, unless a reader tells
// the two apart.
type config struct {
	file   string
	prefix string // "rope_parameters." inside that object
	values map[string]jsonio.RawValue
	nulls  map[string]bool // keys with the value null
	err    error
}

func newConfig(file, prefix string, text []byte) (*config, error) {
	members, err := jsonio.Members(file, text)
	if err != nil {
		return nil, err
	}
	c := &config{file: file, prefix: prefix, values: make(map[string]jsonio.RawValue, len(members)), nulls: map[string]bool{}}
	for _, m := range members {
		// null is how transformers writes "not set".
		if m.Value.Kind() == 'n' {
			c.nulls[m.Name] = true
		} else {
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

// optional is integer, with 0 for null, which turns off what has a default.
func (c *config) optional(key string, fallback, low, high int) int {
	if c.nulls[key] {
		return 0
	}
	return c.integer(key, fallback, low, high)
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
