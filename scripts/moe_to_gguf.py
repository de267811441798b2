#!/usr/bin/env python3
"""A qwen3_moe folder as a GGUF file for llama.cpp, its matrices in one block format, without a vocabulary.

    moe_to_gguf.py MODEL_DIR OUT.gguf [--type Q4_0|BF16]

For benchmarks against llama.cpp on the weights of `sb-synth checkpoint`: token ids go in and out, so no tokenizer is
written. One tensor is in memory at a time. Norms and routers stay in float32. Needs numpy, safetensors, gguf, torch (for bf16).
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
from safetensors import safe_open

LAYER = "model.layers.{}."
ATTENTION = {
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
}
EXPERTS = {"gate_proj": "ffn_gate_exps.weight", "up_proj": "ffn_up_exps.weight", "down_proj": "ffn_down_exps.weight"}


class Checkpoint:
    """Tensors of a folder by name, read when asked for."""

    def __init__(self, folder):
        self.files = {}
        for path in sorted(folder.glob("*.safetensors")):
            f = safe_open(path, "pt")
            self.files.update({name: f for name in f.keys()})

    def shape(self, names):
        one = tuple(self.files[names[0]].get_slice(names[0]).get_shape())
        return one if len(names) == 1 else (len(names), *one)

    def values(self, names):
        parts = [self.files[n].get_tensor(n).to(torch.float32).numpy() for n in names]
        return parts[0] if len(parts) == 1 else np.stack(parts)

    def __contains__(self, name):
        return name in self.files


def tensors(model, config):
    """Pairs of a GGUF name and the names of the tensors that it holds, experts stacked."""
    yield "token_embd.weight", ["model.embed_tokens.weight"]
    yield "output_norm.weight", ["model.norm.weight"]
    if "lm_head.weight" in model:
        yield "output.weight", ["lm_head.weight"]
    for layer in range(config["num_hidden_layers"]):
        prefix = LAYER.format(layer)
        for source, name in ATTENTION.items():
            yield f"blk.{layer}.{name}", [prefix + source]
        for role, name in EXPERTS.items():
            yield f"blk.{layer}.{name}", [f"{prefix}mlp.experts.{e}.{role}.weight" for e in range(config["num_experts"])]


def write(folder, out, kind):
    config = json.loads((folder / "config.json").read_text())
    model = Checkpoint(folder)
    w = gguf.GGUFWriter(out, "qwen3moe")
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config.get("intermediate_size") or config["moe_intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_expert_count(config["num_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("no_vocab")

    def matrix(name):
        return not ("norm" in name or "gate_inp" in name)

    quant = gguf.GGMLQuantizationType[kind]
    # The header names every tensor's size before the first is written.
    listed = list(tensors(model, config))
    for name, sources in listed:
        shape = model.shape(sources)
        if matrix(name):
            stored = gguf.quant_shape_to_byte_shape(shape, quant)
            w.add_tensor_info(name, stored, np.dtype(np.uint8), int(np.prod(stored)), raw_dtype=quant)
        else:
            w.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for name, sources in listed:
        values = model.values(sources)
        w.write_tensor_data(gguf.quants.quantize(values, quant) if matrix(name) else values.astype(np.float32))
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--type", default="Q4_0", choices=["Q4_0", "BF16"])
    args = p.parse_args()
    part = args.out.with_suffix(".part")
    write(args.model, part, args.type)
    part.rename(args.out)


main()
