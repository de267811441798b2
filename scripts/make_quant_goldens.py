#!/usr/bin/env python3
"""Make pkg/quant/testdata/mlx.safetensors: what MLX's quantizer makes of odd weights.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python3 scripts/make_quant_goldens.py pkg/quant/testdata/mlx.safetensors

Tensors, for dtype in bf16, f16, bits in 2 3 4 5 6 8, group in 32 64 128:
DTYPE.w, and DTYPE.BITS.GROUP.{codes,scales,biases}, codes as uint32 words.
"""
import json
import struct
import sys

import mlx.core as mx
import numpy as np


def weights(rng):
    rows = rng.standard_normal((8, 384)).astype(np.float32) * 0.05
    rows[1] = rng.standard_t(3, 384) * 0.02
    rows[2, :128] = 0  # zero groups
    rows[2, 128:256] = 0.75  # constants
    rows[2, 256:] = -3
    rows[3] = np.abs(rows[3])  # one sign
    rows[4] = -np.abs(rows[4]) - 1
    rows[5, ::50] = 1e4  # outliers
    rows[5, 25::100] = -1e4
    rows[6] *= 1e-6  # near and below the least scale, 1e-7
    rows[7, :64] = np.linspace(-1, 1, 64)  # ties
    rows[7, 64:] = rng.integers(-8, 8, 320) / 16
    return rows


def main(path):
    mx.set_default_device(mx.cpu)
    rows = weights(np.random.default_rng(7))
    arrays = {}
    for name, dtype in (("bf16", mx.bfloat16), ("f16", mx.float16)):
        w = mx.array(rows).astype(dtype)
        arrays[f"{name}.w"] = w
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                codes, scales, biases = mx.quantize(w, group_size=group, bits=bits)
                for part, a in (("codes", codes), ("scales", scales), ("biases", biases)):
                    arrays[f"{name}.{bits}.{group}.{part}"] = a
    header, data = {}, b""
    for name in sorted(arrays):
        a = arrays[name]
        dtype = {mx.bfloat16: "BF16", mx.float16: "F16", mx.uint32: "U32"}[a.dtype]
        raw = np.array(a if dtype == "U32" else a.view(mx.uint16)).tobytes()
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


main(sys.argv[1])
