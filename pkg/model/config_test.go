package model

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

const testConfigs = "../../testdata/models"

// edited returns the config.json of a golden checkpoint with some members set
// to other values; the value "" removes one.
func edited(t testing.TB, model string, edits ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testConfigs, model, configFile))
	if err != nil {
		t.Fatal(err)
	}
	members, err := jsonio.Members(model, text)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for i := 0; i < len(edits); i += 2 {
		set[edits[i]] = edits[i+1]
	}
	var out []string
	for _, m := range members {
		value, ok := set[m.Name]
		if !ok {
			value = string(m.Value)
		}
		delete(set, m.Name)
		if value != "" {
			out = append(out, `"`+m.Name+`": `+value)
		}
	}
	for name, value := range set {
		if value != "" {
			out = append(out, `"`+name+`": `+value)
		}
	}
	return []byte("{" + strings.Join(out, ",") + "}")
}

func TestConfigRefused(t *testing.T) {
	const llama, qwen = "llama-gqa", "qwen3moe"
	for _, test := range []struct {
		model string
		edits []string
		want  string
	}{
		{llama, []string{"model_type", `"mamba"`}, `model_type: "mamba" is not supported, only llama, mistral, qwen2, qwen3, qwen3_moe, gpt_oss and deepseek_v2`},
		{llama, []string{"model_type", ""}, "model_type: missing"},
		{llama, []string{"model_type", "7"}, "model_type: number"},
		{llama, []string{"hidden_size", ""}, "hidden_size: missing"},
		{llama, []string{"hidden_size", `"64"`}, "hidden_size: string"},
		{llama, []string{"hidden_size", "0"}, "hidden_size: 0: want a number from 1 to 16777216"},
		{llama, []string{"hidden_size", "99999999999"}, "hidden_size: 99999999999: want a number from 1 to 16777216"},
		{llama, []string{"num_hidden_layers", "-3"}, "num_hidden_layers: -3: want a number from 1 to 4096"},
		{llama, []string{"num_attention_heads", "5"}, "num_attention_heads: 5 does not divide hidden_size 64"},
		{llama, []string{"num_key_value_heads", "3"}, "4 attention heads are not a multiple of 3 key-value heads"},
		{llama, []string{"head_dim", "7"}, "head dimension 7 is odd, rotary embedding pairs dimensions"},
		{llama, []string{"hidden_act", `"gelu"`}, `hidden_act: "gelu" is not supported, only "silu"`},
		{llama, []string{"mlp_bias", "true"}, "mlp_bias: true is not supported, only false"},
		{llama, []string{"rope_interleaved", "true"}, "rope_interleaved: true is not supported, only false"},
		{llama, []string{"partial_rotary_factor", "0.5"}, "partial_rotary_factor: 0.5 is not supported, only 1.0"},
		{llama, []string{"rms_norm_eps", "0"}, "rms_norm_eps: 0: want a number above 0"},
		{llama, []string{"rope_theta", "-1"}, "rope_theta: -1: want a number above 0"},
		{llama, []string{"bos_token_id", "320"}, "bos token 320 is outside the vocabulary of 320"},
		{llama, []string{"eos_token_id", "[1, -2]"}, "eos_token_id: token id -2: want 0 to 16777215"},
		{llama, []string{"attention_multiplier", "0.5"}, "attention_multiplier: unknown key with value 0.5 might change the maths"},
		{llama, []string{"sliding_window", "128"}, "sliding_window: unknown key with value 128 might change the maths"},
		{llama, []string{"layer_types", `["full_attention", "sliding_attention", "full_attention"]`}, `layer_types: layer 1 is "sliding_attention", only full_attention is supported`},
		{llama, []string{"layer_types", `["full_attention"]`}, "layer_types: 1 entries for 3 layers"},
		{llama, []string{"quantization_config", `{"quant_method": "gptq", "bits": 4}`}, `quantization_config: checkpoints quantized by other tools are not supported ({"quant_method": "gptq", "bits": 4})`},
		{llama, []string{"rope_scaling", `{"type": "longrope", "factor": 4}`}, `rope_scaling.rope_type: "longrope" is not supported, only default, linear, llama3 and yarn`},
		{llama, []string{"rope_scaling", `{"type": "yarn"}`}, `rope_scaling.factor: missing`},
		{llama, []string{"rope_scaling", `{"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}`}, `rope_scaling.beta_fast: 1 is below beta_slow 2`},
		{llama, []string{"rope_scaling", `{"type": "dynamic", "factor": 2}`}, `rope_scaling.rope_type: "dynamic" is not supported`},
		{llama, []string{"rope_scaling", `{"type": "linear"}`}, "rope_scaling.factor: missing"},
		{llama, []string{"rope_scaling", `{"rope_type": "default", "mrope_section": [1]}`}, "rope_scaling.mrope_section: unknown key with value [1] might change the maths"},
		{llama, []string{"rope_scaling", `{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}`}, "rope_scaling.low_freq_factor: 4 is not below high_freq_factor 4"},
		{llama, []string{"rope_scaling", `{"rope_type": "linear", "factor": 2}`, "rope_parameters", `{"rope_type": "linear", "factor": 3}`}, "rope_scaling: differs from rope_parameters"},
		{qwen, []string{"num_experts_per_tok", "9"}, "9 experts per token of only 8"},
		{qwen, []string{"num_local_experts", "9"}, "num_local_experts: 9, but num_experts is 8"},
		{qwen, []string{"norm_topk_prob", "1"}, "norm_topk_prob: number"},
		{qwen, []string{"shared_expert_intermediate_size", "64"}, "shared_expert_intermediate_size: unknown key with value 64 might change the maths"},
		{qwen, []string{"num_hidden_layers", "4096", "num_experts", "1024"}, "4096 layers of 1024 experts are more than any model has"},
	} {
		_, err := parseConfig(configFile, edited(t, test.model, test.edits...), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "config.json: "+test.want) {
			t.Errorf("%s %s:\n got %v\nwant %s", test.model, test.edits, err, test.want)
		}
		if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.ExitCode() != 3) {
			t.Errorf("%s: not an error of exit code 3", err)
		}
	}
	for _, text := range []string{"", "{", "[]", "null", `{"a": 1, "a": 2}`, "\xff"} {
		if _, err := parseConfig(configFile, []byte(text), nil); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestConfigRead(t *testing.T) {
	const llama, qwen = "llama-gqa", "qwen3moe"
	for _, test := range []struct {
		name, model string
		edits       []string
		change      func(*doc.Architecture)
	}{
		{"unchanged", llama, nil, func(*doc.Architecture) {}},
		{"null is not set", llama, []string{"head_dim", "null", "attention_multiplier", "null"}, func(*doc.Architecture) {}},
		{"harmless keys", llama, []string{"_name_or_path", `"x"`, "temperature", "0.5"}, func(a *doc.Architecture) {
			a.Extra["_name_or_path"], a.Extra["temperature"] = "x", "0.5"
		}},
		{"head_dim", llama, []string{"head_dim", "48"}, func(a *doc.Architecture) { a.HeadDim = 48 }},
		{"defaults of LlamaConfig", llama, []string{"num_key_value_heads", "", "rms_norm_eps", "", "max_position_embeddings", "", "rope_theta", "", "tie_word_embeddings", "", "attention_bias", ""}, func(a *doc.Architecture) {
			a.KVHeads, a.NormEps, a.ContextTokens, a.RoPE.Theta, a.TiedEmbedding = 4, 1e-6, 2048, 10000, false
		}},
		{"attention_bias", llama, []string{"attention_bias", "true"}, func(a *doc.Architecture) { a.AttentionBias, a.AttentionOBias = true, true }},
		{"no bos", llama, []string{"bos_token_id", "null"}, func(a *doc.Architecture) { a.BOS = -1 }},
		{"list of eos", llama, []string{"eos_token_id", "[5, 7]"}, func(a *doc.Architecture) { a.EOS = []int{5, 7} }},
		{"linear, before v4.43", llama, []string{"rope_scaling", `{"type": "linear", "factor": 2.5}`}, func(a *doc.Architecture) {
			a.RoPE.Type, a.RoPE.Factor = "linear", 2.5
		}},
		{"llama3 of v4", llama, []string{"rope_scaling", `{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 512}`}, func(a *doc.Architecture) {
			a.RoPE = doc.RoPE{Theta: 10000, Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 512}
		}},
		{"llama3 without original length", llama, []string{"rope_scaling", `{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}`}, func(a *doc.Architecture) {
			a.RoPE = doc.RoPE{Theta: 10000, Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 1024}
		}},
		{"theta of v5 wins", llama, []string{"rope_parameters", `{"rope_type": "default", "rope_theta": 500000}`}, func(a *doc.Architecture) { a.RoPE.Theta = 500000 }},
		{"layer_types", llama, []string{"layer_types", `["full_attention", "full_attention", "full_attention"]`}, func(*doc.Architecture) {}},
		{"sliding window not used", qwen, []string{"sliding_window", "77"}, func(*doc.Architecture) {}},
		{"sliding window", qwen, []string{"sliding_window", "77", "use_sliding_window", "true"}, func(a *doc.Architecture) { a.SlidingWindow = 77 }},
		{"num_local_experts", qwen, []string{"num_experts", "", "num_local_experts", "8"}, func(*doc.Architecture) {}},
		{"sparse step", qwen, []string{"decoder_sparse_step", "2"}, func(a *doc.Architecture) { a.MoELayers, a.IntermediateSize = []int{1}, 192 }},
		{"mlp only", qwen, []string{"mlp_only_layers", "[1]"}, func(a *doc.Architecture) { a.MoELayers, a.IntermediateSize = []int{0}, 192 }},
		{"no experts at all", qwen, []string{"num_experts", "0", "num_experts_per_tok", "2"}, func(a *doc.Architecture) {
			a.MoELayers, a.IntermediateSize, a.Experts, a.ExpertsPerToken, a.ExpertSize, a.NormTopK = nil, 192, 0, 0, 0, false
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, err := parseConfig(configFile, edited(t, test.model), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseConfig(configFile, edited(t, test.model, test.edits...), nil)
			if err != nil {
				t.Fatal(err)
			}
			test.change(&want.arch)
			if diff := cmp.Diff(want.arch, got.arch); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestGenerationConfig(t *testing.T) {
	config := edited(t, "llama-gqa")
	mc, err := parseConfig(configFile, config, []byte(`{"eos_token_id": [3, 4], "temperature": 0.7}`))
	if err != nil || cmp.Diff([]int{3, 4}, mc.arch.EOS) != "" {
		t.Errorf("eos %v, error %v; want those of generation_config.json", mc, err)
	}
	mc, err = parseConfig(configFile, config, []byte(`{"temperature": 0.7}`))
	if err != nil || cmp.Diff([]int{0}, mc.arch.EOS) != "" {
		t.Errorf("eos %v, error %v; want those of config.json", mc, err)
	}
	if _, err = parseConfig(configFile, config, []byte(`{"eos_token_id": "x"}`)); err == nil {
		t.Error("a bad generation_config.json was read")
	}
}

func TestSyntheticConfig(t *testing.T) {
	for text, want := range map[string]bool{"": false, "false": false, "true": true} {
		mc, err := parseConfig(configFile, edited(t, "llama-gqa", "sb_synthetic", text), nil)
		if err != nil || mc.synthetic != want {
			t.Errorf("sb_synthetic %q: %v, error %v", text, mc, err)
		}
	}
}

// Published configurations of models that are supported, from the hub.
func TestPublishedConfigs(t *testing.T) {
	for name, text := range map[string]string{
		"SmolLM2": `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
			"eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
			"is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
			"num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
			"rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
			"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152}`,
		"Qwen3-30B-A3B": `{"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
			"decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
			"intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
			"moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
			"num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
			"rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
			"transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`,
	} {
		mc, err := parseConfig(configFile, []byte(text), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := NewProfile(name, mc.family, mc.arch, "bf16")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// The parameter counts on the models' cards.
		if want := map[string]int64{"SmolLM2": 134515008, "Qwen3-30B-A3B": 30532122624}[name]; p.Parameters != want {
			t.Errorf("%s: %d parameters, want %d", name, p.Parameters, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, model := range []string{"llama-gqa", "llama-rope-scaled", "qwen3moe", "qwen3moe-mixed"} {
		f.Add(edited(f, model))
	}
	f.Add([]byte(`{"model_type": "llama", "hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 1, "intermediate_size": 1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		mc, err := parseConfig(configFile, text, nil)
		if err != nil {
			return
		}
		a := &mc.arch
		if a.Layers > 64 || len(a.MoELayers)*a.Experts > 4096 {
			return // only slow
		}
		p, err := NewProfile("fuzz", mc.family, *a, "bf16")
		if err != nil {
			return
		}
		if p.Parameters <= 0 || len(p.Ops) < 5 {
			t.Fatalf("%d parameters in %d ops", p.Parameters, len(p.Ops))
		}
	})
}
