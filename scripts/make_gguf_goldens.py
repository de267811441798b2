#!/usr/bin/env python3
"""Makes the GGUF files of pkg/model/testdata from the checkpoints of testdata/models, and the digests of the values that
every reader must find in them.

    make_gguf_goldens.py [ROOT]

Independent of the Go reader: files and quantized blocks come from the package gguf, safetensors from the package of
that name. A digest is the SHA-256 of a tensor's values as little-endian float32, row-major, in the hub's row order.
Needs gguf, numpy, safetensors, torch.
"""

import hashlib
import json
import math
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open

F32, F16, BF16, Q8_0, Q4_0, Q4_1 = Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1

# Every type in every place where it could be mishandled: permuted, stacked, plain.
LLAMA_TYPES = {
    "token_embd": Q8_0, "output": Q4_0, "attn_q": Q4_1, "attn_k": F16, "attn_v": Q4_0, "attn_output": BF16,
    "ffn_gate": Q4_1, "ffn_up": Q4_1, "ffn_down": Q8_0,
}
QWEN_TYPES = {
    "token_embd": BF16, "output": Q8_0, "attn_q": Q4_0, "attn_k": Q4_0, "attn_v": F16, "attn_output": Q4_0,
    "ffn_gate_exps": Q4_0, "ffn_up_exps": Q4_1, "ffn_down_exps": Q8_0,
}

HUB_TO_GGUF = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}


def load(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as f:
            for name in f.keys():
                tensors[name] = f.get_tensor(name).float().numpy()
    return tensors


def has_parts(folder):
    """Whether tensors of a checkpoint are cut up or unpacked when they are read."""
    return json.loads((folder / "config.json").read_text())["model_type"] in ("gpt_oss", "deepseek_v2")


def digest(values):
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()


def permute(w, heads):
    """The hub's rows [heads, 2, d/2] in llama.cpp's order [heads, d/2, 2]."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, stem = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{HUB_TO_GGUF[stem]}", kind
    return HUB_TO_GGUF[stem], kind


def add(writer, name, kind, values, types):
    """Adds a tensor and returns what a reader must find."""
    qtype = types.get(name.rpartition(".")[2], F32) if values.ndim > 1 else F32
    if qtype == F32:
        values = np.ascontiguousarray(values, dtype=np.float32)
        writer.add_tensor(f"{name}.{kind}", values)
        return values
    if qtype == F16:
        values = values.astype(np.float16)
        writer.add_tensor(f"{name}.{kind}", values)
        return values.astype(np.float32)
    data = gguf.quants.quantize(np.ascontiguousarray(values, dtype=np.float32), qtype)
    writer.add_tensor(f"{name}.{kind}", data, raw_dtype=qtype)
    return gguf.quants.dequantize(data, qtype)


def convert(source, target, arch, types, rope_factors=None, **options):
    config = json.loads((source / "config.json").read_text())
    tensors = load(source)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    rope = config.get("rope_parameters") or config
    w = gguf.GGUFWriter(target, arch, **options)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    if "head_dim" in config:
        w.add_key_length(config["head_dim"])
        w.add_value_length(config["head_dim"])
    if arch == "llama":
        w.add_vocab_size(config["vocab_size"])
        w.add_rope_dimension_count(config.get("head_dim", config["hidden_size"] // heads))
    elif "num_experts" in config:
        w.add_expert_count(config["num_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    vocabulary(w, source)

    want = {}
    stacks = {}
    for name in sorted(tensors):
        values = tensors[name]
        if ".mlp.experts." in name:
            layer, expert, role = name.split(".")[2], name.split(".")[5], name.split(".")[6].removesuffix("_proj")
            stacks.setdefault((layer, role), {})[int(expert)] = (name, values)
            continue
        target_name, kind = gguf_name(name)
        n = {"attn_q": heads, "attn_k": kv_heads}.get(target_name.rpartition(".")[2]) if arch == "llama" else None
        if n:
            want[name] = digest(unpermute(add(w, target_name, kind, permute(values, n), types), n))
        else:
            want[name] = digest(add(w, target_name, kind, values, types))
    for (layer, role), experts in stacks.items():
        stacked = np.stack([experts[i][1] for i in range(len(experts))])
        found = add(w, f"blk.{layer}.ffn_{role}_exps", "weight", stacked, types)
        for i, (name, _) in experts.items():
            want[name] = digest(found[i])
    if rope_factors is not None:
        w.add_tensor("rope_freqs.weight", rope_factors)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return want


def vocabulary(w, source):
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {t["id"]: t["content"] for t in tokenizer["added_tokens"]}
    tokens = {i: token for token, i in vocab} | special
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([tokens[i] for i in sorted(tokens)])
    w.add_token_types([3 if i in special else 1 for i in sorted(tokens)])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)
    w.add_chat_template("{{ messages }}")


def llama3_factors(theta, factor, low, high, original, dim):
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (i / dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, dtype=np.float32)


# Offsets of the f16 numbers of a block, which random bits would often make infinite.
BLOCKS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": [],
}


def random_blocks():
    """Random blocks of every quantized type and their values, as the package gguf reads them."""
    rng, out = np.random.default_rng(7), {}
    for name, halves in BLOCKS.items():
        kind = Type[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = rng.integers(0, 256, (3, size), dtype=np.uint8)
        for at in halves:
            blocks[:, at:at + 2] = rng.normal(0, 0.1, (3, 1)).astype(np.float16).view(np.uint8)
        if name == "MXFP4":
            blocks[:, 0] = [100, 127, 130]
        values = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        out[name.lower()] = {"blocks": blocks.tobytes().hex(), "values": values.view(np.uint32).ravel().tolist()}
    return out


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    models, out = root / "testdata/models", root / "pkg/model/testdata"
    out.mkdir(parents=True, exist_ok=True)
    want = {folder.name: {name: digest(values) for name, values in load(folder).items()}
            for folder in sorted(models.iterdir()) if folder.is_dir() and not has_parts(folder)}
    want["llama.gguf"] = convert(models / "llama-gqa", out / "llama.gguf", "llama", LLAMA_TYPES)
    # Biases, and rope factors as of Llama 3.1, which are not those of the source.
    factors = llama3_factors(500000.0, 8.0, 1.0, 4.0, 8192, 32)
    want["llama-bias.gguf"] = convert(models / "llama-rope-scaled", out / "llama-bias.gguf", "llama", LLAMA_TYPES, factors)
    want["qwen3moe.gguf"] = convert(models / "qwen3moe", out / "qwen3moe.gguf", "qwen3moe", QWEN_TYPES)
    # The weights as they are, in three files.
    want["qwen2-00001-of-00003.gguf"] = convert(
        models / "qwen2", out / "qwen2.gguf", "qwen2", dict.fromkeys(QWEN_TYPES | LLAMA_TYPES, BF16), split_max_tensors=10)
    (out / "blocks.json").write_text(json.dumps(random_blocks()) + "\n")
    (out / "values.json").write_text(json.dumps(want, indent=1, sort_keys=True) + "\n")


main()
