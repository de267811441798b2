#!/usr/bin/env python3
"""The weights of a packed store, dequantized, as a Hugging Face folder in float32: what its kernels compute with.

    store_to_hf.py STORE CONFIG_DIR OUT [--plan NAME] [--tier default|top]

CONFIG_DIR is a Hugging Face folder of the same model, for config.json and tokenizer.json. With greedy_reference.py this
checks that a run at the same tier, with --activations f32, gives the text that transformers gives:

    sb-run m.sb --mode exact --activations f32 --kv f32 --raw -p TEXT -n 32
    store_to_hf.py m.sb MODEL_DIR out --tier top && greedy_reference.py out --prompt TEXT -n 32

Needs numpy, safetensors; written from pkg/store/FORMAT.md. Records compressed with zstd need the package zstandard.
"""

import argparse
import json
import os
import shutil

import numpy as np
from safetensors.numpy import save_file

ROLES = {
    "attention": {
        "norm": "input_layernorm.weight", "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight",
        "v": "self_attn.v_proj.weight", "o": "self_attn.o_proj.weight", "q_bias": "self_attn.q_proj.bias",
        "k_bias": "self_attn.k_proj.bias", "v_bias": "self_attn.v_proj.bias", "o_bias": "self_attn.o_proj.bias",
        "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight",
    },
    "mlp_dense": {
        "norm": "post_attention_layernorm.weight", "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight",
        "down": "mlp.down_proj.weight",
    },
    "moe_router": {"norm": "post_attention_layernorm.weight", "weight": "mlp.gate.weight"},
    "moe_expert": {"gate": "gate_proj.weight", "up": "up_proj.weight", "down": "down_proj.weight"},
}


def name_of(op, role):
    """The checkpoint's name of a tensor of the families llama and qwen3_moe."""
    kind = op["kind"]
    if kind == "embedding":
        return "model.embed_tokens.weight"
    if kind == "norm":
        return "model.norm.weight"
    if kind == "lm_head":
        return "lm_head.weight"
    prefix = f"model.layers.{op['layer']}."
    if kind == "moe_expert":
        prefix += f"mlp.experts.{op['expert']}."
    return prefix + ROLES[kind][role]


def half(raw, dtype):
    """bf16 or f16 bytes as float32."""
    if dtype == "f16":
        return np.frombuffer(raw, "<f2").astype(np.float32)
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)


def decode(raw, t):
    """One tensor of a record's raw bytes, [rows, cols]."""
    rows, cols, at = t["rows"], t["cols"], t["data_offset"]
    if t["dtype"] == "f32":
        return np.frombuffer(raw, "<f4", rows * cols, at).reshape(rows, cols)
    if t["dtype"] != "codes":
        return half(raw[at:at + 2 * rows * cols], t["dtype"]).reshape(rows, cols)
    bits, groups = t["bits"], cols // t["group"]
    packed = np.frombuffer(raw, np.uint8, rows * cols * bits // 8, at)
    planes = np.unpackbits(packed, bitorder="little").reshape(rows, cols, bits)
    codes = (planes.astype(np.uint32) << np.arange(bits, dtype=np.uint32)).sum(2).reshape(rows, groups, t["group"])
    size = 2 * rows * groups
    scale = half(raw[t["scales_offset"]:t["scales_offset"] + size], t["scale"]).reshape(rows, groups, 1)
    bias = half(raw[t["biases_offset"]:t["biases_offset"] + size], t["scale"]).reshape(rows, groups, 1)
    return (codes.astype(np.float32) * scale + bias).reshape(rows, cols)


def read_record(store, manifest, record):
    """Raw bytes of a record."""
    with open(os.path.join(store, manifest["files"][record["file"]]["file"]), "rb") as f:
        f.seek(record["offset"])
        raw = f.read(record["stored_bytes"])
    if record.get("zstd"):
        import zstandard
        raw = zstandard.ZstdDecompressor().decompress(raw)
    return raw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("config_dir")
    parser.add_argument("out")
    parser.add_argument("--plan")
    parser.add_argument("--tier", choices=("default", "top"), default="top")
    args = parser.parse_args()

    with open(os.path.join(args.store, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    stored = next(p for p in manifest["plans"] if args.plan in (None, p["name"]))
    with open(os.path.join(args.store, stored["file"]), encoding="utf-8") as f:
        plan = json.load(f)
    records = {c["id"]: manifest["records"][n] for c, n in zip(plan["tensor_catalog"], stored["records"])}
    ops = {op["id"]: op for op in manifest["profile"]["ops"]}

    tensors = {}
    for bundle in plan["op_bundles"]:
        op = ops[bundle["op"]]
        if op.get("shares"):
            continue
        for record_id in bundle["tiers"][-1 if args.tier == "top" else 0]["requires"]:
            record = records[record_id]
            raw = read_record(args.store, manifest, record)
            for t in manifest["layouts"][record["layout"]]["tensors"]:
                name, value = name_of(op, t["role"]), decode(raw, t)
                if t["rows"] == 1:
                    value = value[0]
                tensors[name] = tensors[name] + value if name in tensors else value
    os.makedirs(args.out, exist_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, os.path.join(args.out, "model.safetensors"))
    with open(os.path.join(args.config_dir, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["dtype" if "dtype" in config else "torch_dtype"] = "float32"
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    shutil.copy(os.path.join(args.config_dir, "tokenizer.json"), args.out)


if __name__ == "__main__":
    main()
