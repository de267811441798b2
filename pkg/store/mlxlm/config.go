package mlxlm

import (
	"errors"
	"io/fs"
	"slices"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// texts are the small files beside the weights, by name.
func (e *export) texts() (map[string][]byte, error) {
	texts := map[string][]byte{}
	for _, name := range []string{"tokenizer.json", "special_tokens_map.json", "chat_template.jinja"} {
		b, err := e.text(name)
		if err != nil {
			return nil, err
		}
		if b != nil {
			texts[name] = b
		}
	}
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	if texts["config.json"], err = jsonio.Marshal(config); err != nil {
		return nil, err
	}
	if b := texts["tokenizer.json"]; b != nil {
		config, err := e.tokenizerConfig(b)
		if err != nil {
			return nil, err
		}
		if texts["tokenizer_config.json"], err = jsonio.Marshal(config); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// text is a small file of the store, nil if there is none.
func (e *export) text(name string) ([]byte, error) {
	b, err := e.store.Text(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// config is config.json: what the source's had, what the forward pass needs in
// the places where mlx-lm looks, and the encodings.
func (e *export) config() (map[string]any, error) {
	config := map[string]any{}
	b, err := e.text("config.json")
	if err != nil {
		return nil, err
	}
	if b != nil {
		var source map[string]jsonio.RawValue
		if err := jsonio.UnmarshalLoose("config.json", b, &source); err != nil {
			return nil, err
		}
		for key, value := range source {
			config[key] = value
		}
	}
	p := &e.store.Manifest().Profile
	a := &p.Architecture
	for key, value := range map[string]any{
		"model_type": p.Family, "hidden_size": a.HiddenSize, "num_hidden_layers": a.Layers, "num_attention_heads": a.Heads,
		"num_key_value_heads": a.KVHeads, "head_dim": a.HeadDim, "vocab_size": a.VocabSize,
		"max_position_embeddings": a.ContextTokens, "rms_norm_eps": a.NormEps, "tie_word_embeddings": a.TiedEmbedding,
		"rope_theta": a.RoPE.Theta, "attention_bias": a.AttentionBias,
	} {
		config[key] = value
	}
	if _, ok := config["intermediate_size"]; a.IntermediateSize > 0 || !ok { // asked for even where no layer is dense
		config["intermediate_size"] = max(a.IntermediateSize, a.ExpertSize)
	}
	delete(config, "rope_parameters") // rope_theta and rope_scaling say it
	delete(config, "rope_scaling")
	if scaling := ropeScaling(&a.RoPE); scaling != nil {
		config["rope_scaling"] = scaling
	}
	if a.BOS >= 0 {
		config["bos_token_id"] = a.BOS
	}
	if len(a.EOS) > 0 {
		config["eos_token_id"] = a.EOS
	}
	if a.Experts > 0 {
		dense := []int{}
		for layer := range a.Layers {
			if !a.MoE(layer) {
				dense = append(dense, layer)
			}
		}
		config["num_experts"], config["num_experts_per_tok"], config["moe_intermediate_size"] = a.Experts, a.ExpertsPerToken, a.ExpertSize
		config["norm_topk_prob"], config["decoder_sparse_step"], config["mlp_only_layers"] = a.NormTopK, 1, dense
	}
	if a.SlidingWindow > 0 {
		layers := make([]string, a.Layers)
		for i := range layers {
			layers[i] = "full_attention"
			if a.Window(i) > 0 {
				layers[i] = "sliding_attention"
			}
		}
		config["sliding_window"], config["layer_types"] = a.SlidingWindow, layers
	} else {
		delete(config, "sliding_window")
		delete(config, "layer_types")
	}
	delete(config, "quantization_config")
	delete(config, "quantization")
	if q := e.quantization(); q != nil {
		config["quantization"], config["quantization_config"] = q, q
	}
	return config, nil
}

// ropeScaling is what mlx-lm takes beside theta; nil for plain rotation.
func ropeScaling(r *doc.RoPE) map[string]any {
	s := map[string]any{"rope_type": r.Type, "factor": r.Factor}
	switch r.Type {
	case "linear":
	case "llama3":
		s["low_freq_factor"], s["high_freq_factor"] = r.LowFreqFactor, r.HighFreqFactor
		s["original_max_position_embeddings"] = r.OriginalContext
	default:
		return nil
	}
	return s
}

// codes are the settings of a module.
type codes struct {
	Group int `json:"group_size"`
	Bits  int `json:"bits"`
}

// quantization holds the settings of most of the weights, and of each module
// that has others; nil if nothing is coded.
func (e *export) quantization() map[string]any {
	bytes := map[codes]int64{}
	var most codes
	for _, m := range e.modules {
		if !m.coded() {
			continue
		}
		c := codes{m.group, m.bits}
		bytes[c] += m.tensors[0].bytes
		if bytes[c] > bytes[most] || bytes[c] == bytes[most] && c.Bits > most.Bits {
			most = c
		}
	}
	if most.Bits == 0 {
		return nil
	}
	q := map[string]any{"group_size": most.Group, "bits": most.Bits, "mode": "affine"}
	for _, m := range e.modules {
		if c := (codes{m.group, m.bits}); m.coded() && c != most {
			q[m.path] = c
		}
	}
	return q
}

// tokenizerConfig is what transformers needs beside tokenizer.json.
func (e *export) tokenizerConfig(tokenizer []byte) (map[string]any, error) {
	var t struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := jsonio.UnmarshalLoose("tokenizer.json", tokenizer, &t); err != nil {
		return nil, err
	}
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	a := &e.store.Manifest().Profile.Architecture
	for _, token := range t.Added {
		if token.ID == a.BOS {
			config["bos_token"] = token.Content
		}
		if slices.Index(a.EOS, token.ID) == 0 {
			config["eos_token"] = token.Content
		}
	}
	return config, nil
}
