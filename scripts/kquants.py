#!/usr/bin/env python3
"""Rounds a checkpoint's linear layers to llama.cpp's K formats, for `sb-calibrate compare --other`.

    scripts/kquants.py --ggml libggml-base.so --stats STATS MODEL OUT...

writes a float32 checkpoint OUT/Q4_K and so on for each of Q2_K to Q6_K: every linear layer between embedding and head goes through
llama.cpp's own quantize function with importance weights, the second moments of a statistics file of `sb-calibrate measure`, and back.
Rows that are no multiple of 256 are padded with zeros of weight zero; nominal bits per weight are counted without the padding.
Router and norms stay as they are, as in our own levels. Needs numpy, and torch and safetensors for Python.
"""

import argparse
import ctypes
import json
import os
import re
import shutil

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

BLOCK = 256
BYTES = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}  # of 256 weights
ROLES = {"q_proj": "q", "k_proj": "q", "v_proj": "q", "o_proj": "o", "gate_proj": "gate", "up_proj": "gate", "down_proj": "down"}


def moments(stats, name):
    """The second moments of the inputs of a layer by its name in the checkpoint; an expert's shrunk to its layer's."""
    layer = re.search(r"layers\.(\d+)\.", name).group(1)
    role = ROLES[name.split(".")[-2]]
    expert = re.search(r"experts\.(\d+)\.", name)
    if expert is None:
        op = "attn" if "self_attn" in name else "mlp"
        return stats.get(f"block_{layer}.{op}.{role}")
    of_layer = re.compile(rf"block_{layer}\.expert_\d+\.{role}$")
    mean = torch.stack([v for k, v in stats.items() if of_layer.match(k)]).mean(0)
    own = stats.get(f"block_{layer}.expert_{expert.group(1)}.{role}", mean)
    return (own + mean) / 2


class Ggml:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path, mode=os.RTLD_LAZY)

    def round(self, kind, w, weights):
        rows, cols = w.shape
        padded = -(-cols // BLOCK) * BLOCK
        x = np.zeros((rows, padded), np.float32)
        x[:, :cols] = w
        importance = np.zeros(padded, np.float32)
        importance[:cols] = weights + 1e-3 * weights.mean()
        packed = np.zeros((rows, padded // BLOCK * BYTES[kind]), np.uint8)
        pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
        quantize = getattr(self.lib, f"quantize_{kind.lower().replace('_k', '_K')}")
        quantize.restype = ctypes.c_size_t
        size = quantize(pointer(x), pointer(packed), ctypes.c_int64(rows), ctypes.c_int64(padded), pointer(importance))
        assert size == packed.nbytes, (size, packed.nbytes)
        back = np.zeros_like(x)
        dequantize = getattr(self.lib, f"dequantize_row_{kind.lower().replace('_k', '_K')}")
        dequantize(pointer(packed), pointer(back), ctypes.c_int64(x.size))
        return back[:, :cols]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ggml", required=True, help="shared library with llama.cpp's quantize functions")
    p.add_argument("--stats", required=True, help="statistics file of sb-calibrate measure")
    p.add_argument("model")
    p.add_argument("out")
    args = p.parse_args()
    ggml = Ggml(args.ggml)
    with safe_open(args.stats, "pt") as f:
        stats = {k: f.get_tensor(k) for k in f.keys() if not k.endswith((".gram", ".rows")) and k != "tokens"}
    tensors = {}
    files = [n for n in sorted(os.listdir(args.model)) if n.endswith(".safetensors")]
    for name in files:
        with safe_open(os.path.join(args.model, name), "pt") as f:
            tensors.update({k: f.get_tensor(k).float() for k in f.keys()})
    for kind, size in BYTES.items():
        folder = os.path.join(args.out, kind)
        os.makedirs(folder, exist_ok=True)
        rounded = {}
        for name, w in tensors.items():
            if name.split(".")[-2] in ROLES and name.endswith(".weight"):
                weights = moments(stats, name)
                w = torch.from_numpy(ggml.round(kind, w.numpy(), weights.numpy()))
            rounded[name] = w.contiguous()
        save_file(rounded, os.path.join(folder, "model.safetensors"))
        for extra in os.listdir(args.model):
            if extra.endswith(".json") and "index" not in extra:
                shutil.copy(os.path.join(args.model, extra), folder)
        print(json.dumps({"checkpoint": kind, "nominal_bits_per_weight": 8 * size / BLOCK}))


if __name__ == "__main__":
    main()
