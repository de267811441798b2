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
	const (
		llama, qwen      = "llama-gqa", "qwen3moe"
		window           = "qwen2-window"
		gptOSS, deepseek = "gpt-oss", "deepseek-v2"
	)
	for _, test := range []struct {
		model string
		edits []string
		want  string
	}{
		{window, []string{"layer_types", `["full_attention", "chunked_attention", "full_attention"]`}, `layer_types: layer 1 is "chunked_attention", only full_attention and sliding_attention is supported`},
		{window, []string{"use_sliding_window", "false", "layer_types", `["full_attention", "sliding_attention", "full_attention"]`}, `layer_types: layer 1 is "sliding_attention", but there is no sliding_window`},
		{"mistral", []string{"attention_bias", "true"}, "attention_bias: true is not supported, only false"},
		{gptOSS, []string{"experts_per_token", "3"}, "experts_per_token: 3, but num_experts_per_tok is 2"},
		{gptOSS, []string{"quantization_config", `{"quant_method": "awq"}`}, "quantization_config: checkpoints quantized by other tools"},
		{llama, []string{"quantization_config", `{"quant_method": "mxfp4"}`}, "quantization_config: checkpoints quantized by other tools"},
		{deepseek, []string{"norm_topk_prob", "true"}, "norm_topk_prob: true is not supported, only false"},
		{deepseek, []string{"scoring_func", `"sigmoid"`}, `scoring_func: "sigmoid" is not supported`},
		{deepseek, []string{"topk_method", `"noaux_tc"`}, `topk_method: "noaux_tc" is not supported, only greedy and group_limited_greedy`},
		{deepseek, []string{"rope_scaling", `{"type": "yarn", "factor": 8, "mscale": 1.0, "mscale_all_dim": 0.5}`}, "rope_scaling.mscale: must equal mscale_all_dim"},
		{deepseek, []string{"num_key_value_heads", "2"}, "num_key_value_heads: 2: latent attention has as many as heads, 4"},
		{deepseek, []string{"qk_rope_head_dim", "15"}, "head dimension 15 is odd"},
		{qwen, []string{"quantization", `{"group_size": 64, "bits": 7}`}, "quantization.bits: 7: want 2, 3, 4, 5, 6 or 8"},
		{qwen, []string{"quantization", `{"group_size": 64, "bits": 4, "mode": "nvfp4"}`}, `quantization.mode: "nvfp4" is not supported, only affine and mxfp4`},
		{qwen, []string{"quantization", `{"group_size": 64, "bits": 4, "lm_head": {"bits": 6, "odd": 1}}`}, "quantization.lm_head.odd: unknown key"},
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
		"Mistral-7B-v0.1": `{"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
			"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
			"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
			"sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0",
			"use_cache": true, "vocab_size": 32000}`,
		"Qwen2.5-0.5B": `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
			"hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
			"max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
			"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
			"transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936}`,
		"Qwen3-0.6B": `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
			"eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
			"max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
			"num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
			"tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
			"use_sliding_window": false, "vocab_size": 151936}`,
		"gpt-oss-20b": `{"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
			"experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
			"initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
			"num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
			"output_router_logits": false, "pad_token_id": 199999, "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn",
			"model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
			"rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
			"truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
			"tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201088}`,
		"DeepSeek-V2-Lite": `{"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map": {},
			"aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1, "hidden_act": "silu",
			"hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
			"model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
			"n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
			"num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
			"rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
			"original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 1.0,
			"scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
			"torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400}`,
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
		if want := map[string]int64{
			"SmolLM2": 134515008, "Qwen3-30B-A3B": 30532122624, "Mistral-7B-v0.1": 7241732096, "Qwen2.5-0.5B": 494032768,
			"Qwen3-0.6B": 596049920, "gpt-oss-20b": 20914757184, "DeepSeek-V2-Lite": 15706484224,
		}[name]; p.Parameters != want {
			t.Errorf("%s: %d parameters, want %d", name, p.Parameters, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	folders, err := filepath.Glob(filepath.Join(testConfigs, "*", configFile))
	if err != nil || len(folders) < 14 {
		f.Fatalf("%d configurations, %v", len(folders), err)
	}
	for _, path := range folders {
		f.Add(edited(f, filepath.Base(filepath.Dir(path))))
	}
	f.Add(read(f, "testdata/mlx-qwen3moe/config.json"))
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
