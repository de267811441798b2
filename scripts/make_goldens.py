#!/usr/bin/env python3
"""Makes the tiny random checkpoints in testdata/models and the golden results of transformers for them.

    make_goldens.py [--out testdata/models] [NAME...]

Default initialisation hides bugs: attention is nearly uniform, norms are one, biases zero. So norms and biases are
random here, queries and keys are scaled until the attention is peaked (asserted: mean entropy under half of uniform),
and no router's choice or greedy token hangs on rounding (asserted too). Everything is computed in float32 from the
weights as stored. testdata/models/README.md describes the files. Needs torch, transformers, tokenizers, safetensors.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tiny_corpus import SPLIT_PATTERN

MERGES = 61
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
GREEDY_TOKENS = 16
MOST_ENTROPY = 0.5  # of the entropy of uniform attention, mean over layers, heads and positions
LEAST_ENTROPY = 0.15  # below it attention copies one token and little is tested
LEAST_ROUTING_MARGIN = 2e-5  # between the last chosen probability and the first one left out
LEAST_GREEDY_MARGIN = 2e-3  # between the two largest logits, in units of std(logits)
PROMPT_TOKENS = 260

TEXT = """The planner compiles all legal responses first; when a problem occurs, the runtime switches paths. A model
that does not fit in memory keeps a low-precision skeleton of every expert resident and streams the rest, and a token
never waits for the disk unless the plan says so. Every byte is counted: records, slots, the cache of keys and values,
activations, staging buffers, stacks and code.

func (p *Plan) Fits(cap int64) bool {
\treturn p.Peak()+p.Pool <= cap // 0.9 < used/cap < 1.0
}

Numbers: 0 1 2 3 10 64 128 1024 65536; marks: "quotes", (brackets), [lists], {braces}, a-b, a_b, a/b, 50%, #7, @x, $y.
Other scripts: Größe, naïve, Ελληνικά, Русский, 日本語, العربية, and emoji 🙂 👩‍💻. It's, we'll, they've, I'M.
"""

SHORT_PROMPT = "The planner compiles all legal responses first; when a problem occurs, the runtime switches paths."

ENCODED = [
    "", " ", "a", " a", "  a", "a ", "\n", "\n\n", " \n\n  \n", "\t\tx", "Hello, world!", "it's we'll I'M they've",
    "1234567890", "3.14159", "x=1;y=2", "snake_case camelCase", "naïve Größe", "日本語", "🙂👩‍💻", "\u00a0\u2003x",
    "<|endoftext|>", "a<|im_start|>b", "<|im_end|>\n<|im_start|>user\n", "<|im_start", "e\u0301\u00e9", "\r\n\r\n", "a\x00b",
]


@dataclasses.dataclass
class Model:
    name: str
    config: dict  # as in config.json
    dtype: torch.dtype
    seed: int
    peak: float  # scale of queries, or of the query norm, that peaks the attention
    shards: int = 1
    full: bool = False  # with hidden states, more positions, and the tokenizer's encodings
    mxfp4: bool = False  # experts as gpt-oss has them


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
    "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 128, "initializer_range": 0.02,
    "max_position_embeddings": 1024, "mlp_bias": False, "attention_dropout": 0.0, "pretraining_tp": 1,
    "use_cache": True, "bos_token_id": 0, "eos_token_id": 0,
}
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": 64,
    "num_attention_heads": 4, "initializer_range": 0.02, "max_position_embeddings": 1024, "attention_bias": False,
    "attention_dropout": 0.0, "output_router_logits": False, "router_aux_loss_coef": 0.001, "use_cache": True,
    "sliding_window": None, "use_sliding_window": False, "bos_token_id": 0, "eos_token_id": 0,
}
DENSE = LLAMA | {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 320}
QWEN2 = DENSE | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout": 0.0}
QWEN3 = DENSE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = DENSE | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
for config in (QWEN2, QWEN3, MISTRAL):
    for key in ("mlp_bias", "pretraining_tp"):
        del config[key]
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_act": "silu", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "intermediate_size": 32,
    "vocab_size": 320, "initializer_range": 0.02, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
    "attention_dropout": 0.0, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.9, "output_router_logits": False,
    "use_cache": True, "tie_word_embeddings": False, "eos_token_id": 0, "pad_token_id": 0,
}
DEEPSEEK_V2 = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_act": "silu", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 320, "intermediate_size": 96,
    "moe_intermediate_size": 32, "initializer_range": 0.02, "max_position_embeddings": 1024, "attention_bias": False,
    "attention_dropout": 0.0, "use_cache": True, "norm_topk_prob": False, "tie_word_embeddings": False,
    "bos_token_id": 0, "eos_token_id": 0,
}

# The first of each family has the keys of the hub's older files, the second those that transformers 5 writes, and an
# epsilon of 1e-3, since a wrong one of the usual size changes the logits by less than tests can ask for.
MODELS = [
    Model("llama-gqa", LLAMA | {
        "torch_dtype": "bfloat16", "vocab_size": 320, "num_key_value_heads": 2, "attention_bias": False,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True,
    }, torch.bfloat16, seed=1, peak=2.0, full=True),
    Model("llama-rope-scaled", LLAMA | {
        "dtype": "float32", "vocab_size": 352, "num_hidden_layers": 2, "head_dim": 32, "num_key_value_heads": 1,
        "attention_bias": True, "rms_norm_eps": 1e-3, "tie_word_embeddings": False, "pad_token_id": None,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
        },
    }, torch.float32, seed=2, peak=2.0, full=True),
    Model("qwen3moe", QWEN3_MOE | {
        "torch_dtype": "bfloat16", "vocab_size": 320, "num_hidden_layers": 2, "head_dim": 32,
        "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "moe_intermediate_size": 64, "intermediate_size": 192, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_window_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
        "tie_word_embeddings": False,
    }, torch.bfloat16, seed=5, peak=3.0, shards=3, full=True),
    Model("qwen3moe-mixed", QWEN3_MOE | {
        "dtype": "float16", "vocab_size": 352, "num_hidden_layers": 4, "head_dim": 64, "num_key_value_heads": 1,
        "num_local_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": False, "moe_intermediate_size": 64,
        "intermediate_size": 128, "decoder_sparse_step": 2, "mlp_only_layers": [3], "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": True,
        "pad_token_id": None,
    }, torch.float16, seed=4, peak=3.0, full=True),
    Model("qwen2", QWEN2 | {
        "torch_dtype": "bfloat16", "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "sliding_window": 32, "max_window_layers": 1, "use_sliding_window": False, "tie_word_embeddings": True,
    }, torch.bfloat16, seed=11, peak=3.0),
    Model("qwen2-window", QWEN2 | {
        "dtype": "float16", "num_key_value_heads": 1, "num_hidden_layers": 3, "rms_norm_eps": 1e-3, "vocab_size": 352,
        "sliding_window": 24, "max_window_layers": 1, "use_sliding_window": True, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128,
        },
    }, torch.float16, seed=12, peak=3.0),
    Model("qwen3", QWEN3 | {
        "torch_dtype": "bfloat16", "num_key_value_heads": 2, "head_dim": 32, "attention_bias": False,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None, "sliding_window": None,
        "max_window_layers": 2, "use_sliding_window": False, "tie_word_embeddings": True,
    }, torch.bfloat16, seed=13, peak=3.0),
    Model("qwen3-window", QWEN3 | {
        "dtype": "float16", "num_key_value_heads": 1, "head_dim": 16, "attention_bias": True, "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}, "sliding_window": 20,
        "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": False,
    }, torch.float16, seed=14, peak=3.0),
    Model("mistral", MISTRAL | {
        "torch_dtype": "bfloat16", "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "sliding_window": 40, "tie_word_embeddings": False,
    }, torch.bfloat16, seed=25, peak=3.0),
    Model("mistral-full", MISTRAL | {
        "dtype": "float16", "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-3, "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "tie_word_embeddings": True,
    }, torch.float16, seed=16, peak=3.0),
    Model("gpt-oss", GPT_OSS | {
        "num_local_experts": 8, "experts_per_token": 2, "attention_bias": True, "sliding_window": 24,
        "initial_context_length": 64, "swiglu_limit": 2.0, "layer_types": ["sliding_attention", "full_attention"],
        "rope_theta": 150000, "rope_scaling": {
            "rope_type": "yarn", "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 64,
        },
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    }, torch.bfloat16, seed=17, peak=3.0, mxfp4=True),
    Model("gpt-oss-bf16", GPT_OSS | {
        "dtype": "bfloat16", "num_local_experts": 5, "num_experts_per_tok": 3, "attention_bias": False,
        "sliding_window": 16, "rms_norm_eps": 1e-3, "swiglu_alpha": 1.5, "swiglu_limit": 3.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }, torch.bfloat16, seed=31, peak=3.0),
    Model("deepseek-v2", DEEPSEEK_V2 | {
        "torch_dtype": "bfloat16", "num_hidden_layers": 2, "q_lora_rank": 32, "kv_lora_rank": 32,
        "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
        "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.5, "scoring_func": "softmax",
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1,
        "rms_norm_eps": 1e-6, "rope_theta": 10000, "rope_scaling": {
            "type": "yarn", "factor": 8, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 64,
        },
    }, torch.bfloat16, seed=29, peak=3.0),
    Model("deepseek-v2-lite", DEEPSEEK_V2 | {
        "dtype": "float16", "num_hidden_layers": 2, "q_lora_rank": None, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32, "v_head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "topk_method": "greedy", "first_k_dense_replace": 0, "routed_scaling_factor": 1.0,
        "rms_norm_eps": 1e-3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }, torch.float16, seed=20, peak=3.0),
]


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=256 + len(SPECIAL) + MERGES, special_tokens=[AddedToken(t, special=True) for t in SPECIAL],
        show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))
    return tokenizer


def random_weights(model, spec):
    """Fills model with weights that show mistakes, rounded to the dtype of the checkpoint."""
    generator = torch.Generator().manual_seed(spec.seed)
    has_query_norm = any("q_norm" in name for name, _ in model.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            draw = torch.randn(p.shape, generator=generator)
            if name.endswith("norm.weight"):
                value = 0.5 + torch.rand(p.shape, generator=generator)
            elif name.endswith("bias"):
                value = 0.3 * draw
            elif name.endswith("sinks"):
                value = 1 + draw
            elif "embed_tokens" in name:
                value = draw
            else:
                value = draw * 1.2 / math.sqrt(p.shape[-1])
            if name.endswith("q_norm.weight") or (not has_query_norm and (".q_proj." in name or ".q_b_proj." in name)):
                value = value * spec.peak
            p.copy_(value.to(spec.dtype).float())


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def to_mxfp4(weight):
    """Blocks and scales of [experts, inputs, outputs], as gpt-oss has them: [experts, outputs, groups, 16] and
    [experts, outputs, groups]."""
    groups = weight.float().transpose(1, 2).unflatten(-1, (-1, 32))
    exponent = (groups.abs().amax(-1, keepdim=True) / 6).log2().ceil()
    codes = (groups / 2**exponent).unsqueeze(-1).sub(FP4).abs().argmin(-1).to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponent.squeeze(-1) + 127).to(torch.uint8)


def from_mxfp4(blocks, scales):
    """What transformers makes of them, [experts, inputs, outputs]."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def quantize_experts(state):
    """Replaces the experts' matrices by MXFP4 ones; returns them and the values that they stand for."""
    values = {}
    for name in [n for n in state if n.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales = to_mxfp4(state.pop(name))
        values[name] = from_mxfp4(blocks, scales)
        state |= {name + "_blocks": blocks, name + "_scales": scales}
    return dict(sorted(state.items())), values


def hub_state(model, spec, folder):
    """The weights under the hub's names, in the dtype of the checkpoint, as transformers itself saves them."""
    from safetensors.torch import load_file
    model.save_pretrained(folder)
    state = {}
    for shard in sorted(folder.glob("*.safetensors")):
        state |= load_file(shard)
        shard.unlink()
    return {name: tensor.to(spec.dtype).contiguous() for name, tensor in sorted(state.items())}


def save_weights(state, spec, folder):
    """model.safetensors, or shards of about equal size with their index."""
    if spec.shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    total = sum(t.nbytes for t in state.values())
    index, shard, done = {}, 0, 0
    parts = [{} for _ in range(spec.shards)]
    for name, tensor in state.items():
        shard = min(done * spec.shards // total, spec.shards - 1)
        parts[shard][name] = tensor
        done += tensor.nbytes
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05d}-of-{spec.shards:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= {name: file for name in part}
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": index})


def attention_entropy(attentions):
    """Mean entropy of the attention, divided by that of uniform causal attention."""
    p = torch.stack(attentions)  # [layers, batch, heads, queries, keys]
    entropy = -(p * p.clamp_min(1e-30).log()).sum(-1)[..., 1:]
    uniform = torch.arange(2, p.shape[-2] + 1).float().log()
    return float((entropy / uniform).mean())


def routing_margin(model, run):
    """Smallest gap between the last chosen expert's probability and the next one's; None without experts."""
    margins, hooks = [], []

    def gap(values, k):
        sorted_values = values.sort(-1, descending=True).values
        return float((sorted_values[:, k - 1] - sorted_values[:, k]).min())

    def look(module, inputs, outputs):
        h = inputs[0].reshape(-1, module.weight.shape[1])
        p = torch.nn.functional.linear(h, module.weight, getattr(module, "bias", None)).softmax(-1)
        if getattr(module, "topk_method", "greedy") == "group_limited_greedy":
            best = p.unflatten(-1, (module.num_group, -1)).amax(-1)
            margins.append(gap(best, module.topk_group))
            chosen = torch.zeros_like(best).scatter(1, best.topk(module.topk_group).indices, 1)
            p = p * chosen.repeat_interleave(p.shape[-1] // module.num_group, -1)
        margins.append(gap(p, module.top_k))

    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            hooks.append(module.register_forward_hook(look))
    run()
    for hook in hooks:
        hook.remove()
    return min(margins) if margins else None


def layer_outputs(model, ids):
    """Residual stream after the embedding and after every layer, before the final norm: [layers + 1, tokens, hidden]."""
    seen = []
    hooks = [model.model.embed_tokens.register_forward_hook(lambda m, i, o: seen.append(o[0]))]
    hooks += [layer.register_forward_hook(lambda m, i, o: seen.append((o[0] if isinstance(o, tuple) else o)[0]))
              for layer in model.model.layers]
    model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return torch.stack(seen)


def greedy(model, ids):
    """The next GREEDY_TOKENS tokens and the smallest margin of a choice in units of std(logits)."""
    ids, margin = list(ids), math.inf
    begin = len(ids)
    for _ in range(GREEDY_TOKENS):
        logits = model(torch.tensor([ids])).logits[0, -1]
        top = logits.topk(2).values
        margin = min(margin, float((top[0] - top[1]) / logits.std()))
        ids.append(int(logits.argmax()))
    return ids[begin:], margin


def positions_kept(count, step):
    """Every step-th position, and the last ones."""
    return sorted(set(range(0, count, step)) | set(range(max(0, count - 64 // step), count)))


@torch.no_grad()
def prompt_golden(model, spec, name, text, tokenizer, folder):
    ids = tokenizer.encode(text).ids[:PROMPT_TOKENS]
    out = model(torch.tensor([ids]), output_attentions=True)
    logits = out.logits[0]
    positions = positions_kept(len(ids), 8 if spec.full else 32)
    continuation, greedy_margin = greedy(model, ids)
    ratio = attention_entropy(out.attentions)
    margin = routing_margin(model, lambda: model(torch.tensor([ids + continuation])))
    print(f"  {name}: {len(ids)} tokens, entropy ratio {ratio:.3f}, routing margin {margin}, "
          f"greedy margin {greedy_margin:.4f}")
    assert LEAST_ENTROPY < ratio < MOST_ENTROPY, ratio
    assert margin is None or margin > LEAST_ROUTING_MARGIN, margin
    assert greedy_margin > LEAST_GREEDY_MARGIN, greedy_margin
    write_floats(folder / f"{name}.logits.f32", logits[positions])
    golden = {
        "name": name, "text": text if tokenizer.encode(text).ids == ids else None, "ids": ids,
        "logits_file": f"{name}.logits.f32", "logits_positions": positions, "logits_std": float(logits.std()),
        "greedy_ids": continuation, "greedy_margin_std": greedy_margin, "attention_entropy_ratio": ratio,
        "routing_margin": margin,
    }
    if name == "short" and spec.full:
        write_floats(folder / "short.hidden.f32", layer_outputs(model, ids))
        golden["hidden_file"] = "short.hidden.f32"
    return golden


def write_floats(path, tensor):
    path.write_bytes(np.ascontiguousarray(tensor.numpy(), dtype="<f4").tobytes())


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def make(spec, out):
    print(spec.name)
    folder = out / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", spec.config)
    config = transformers.AutoConfig.from_pretrained(folder)
    fresh = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    random_weights(fresh, spec)
    state = hub_state(fresh, spec, folder)
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    values = {}
    if spec.mxfp4:
        state, values = quantize_experts(state)
    for extra in folder.glob("*"):
        extra.unlink()
    write_json(folder / "config.json", spec.config)
    save_weights(state, spec, folder)
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))

    if spec.mxfp4:
        # transformers would unpack it as bf16.
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        state = {k: v.float() for k, v in state.items() if v.dtype != torch.uint8} | values
        print(" ", model.load_state_dict(state))
    else:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    model.eval()
    long_text = TEXT[::-1] + TEXT  # reversed text is made of rare tokens
    golden = {
        "made_by": "scripts/make_goldens.py", "transformers": transformers.__version__, "torch": torch.__version__,
        "vocab": config.vocab_size, "layers": config.num_hidden_layers, "hidden": config.hidden_size,
        "prompts": [
            prompt_golden(model, spec, "short", SHORT_PROMPT, tokenizer, folder),
            prompt_golden(model, spec, "long", long_text, tokenizer, folder),
        ],
    }
    if spec.full:
        golden["encodings"] = [{"text": t, "ids": tokenizer.encode(t).ids} for t in [*ENCODED, TEXT]]
    write_json(folder / "golden.json", golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"
    parser.add_argument("--out", type=pathlib.Path, default=default)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to make (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)  # so that sums are always in the same order
    unknown = set(args.names) - {m.name for m in MODELS}
    if unknown:
        parser.error(f"unknown models {sorted(unknown)}")
    for spec in MODELS:
        if not args.names or spec.name in args.names:
            make(spec, args.out)


if __name__ == "__main__":
    main()
