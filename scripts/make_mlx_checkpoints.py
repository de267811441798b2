#!/usr/bin/env python3
"""Makes pkg/model/testdata/mlx-*: checkpoints of testdata/models as MLX's converter quantizes them, and the digests of
the values that every reader must find in them.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 numpy
    make_mlx_checkpoints.py [--out pkg/model/testdata]

Every width and group size occurs, as settings of single modules. values.json holds the SHA-256 of each tensor as
little-endian float32, row-major, under its name; of stacked experts one for each, under NAME[INDEX]. Codes are
dequantized in float32.
"""

import argparse
import hashlib
import itertools
import json
import pathlib
import shutil

import mlx.core as mx
import mlx_lm
import numpy as np

SOURCES = ["qwen2", "qwen3moe"]
WIDTHS = [(2, 32), (3, 32), (4, 64), (5, 32), (6, 64), (8, 32)]


def predicate():
    """Settings for modules in turn; some stay as they are."""
    turn = itertools.cycle([*WIDTHS, None, True])

    def choose(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        setting = (8, 64) if path.endswith("mlp.gate") else next(turn)
        if isinstance(setting, tuple):
            return {"bits": setting[0], "group_size": setting[1]}
        return bool(setting)

    return choose


def digest(values):
    return hashlib.sha256(np.array(values.astype(mx.float32)).astype("<f4").tobytes()).hexdigest()


def values(folder):
    config = json.loads((folder / "config.json").read_text())["quantization"]
    tensors, found = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= mx.load(str(path))
    for name, tensor in tensors.items():
        path = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{path}.scales" in tensors:
            own = config.get(path, config)
            own = own if isinstance(own, dict) else config
            scales, biases = (tensors[f"{path}.{kind}"].astype(mx.float32) for kind in ("scales", "biases"))
            tensor = mx.dequantize(tensor, scales, biases, group_size=own["group_size"], bits=own["bits"])
        if ".switch_mlp." in name:
            found |= {f"{name}[{i}]": digest(expert) for i, expert in enumerate(tensor)}
        else:
            found[name] = digest(tensor)
    return found


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=root / "pkg" / "model" / "testdata")
    out = parser.parse_args().out
    for name in SOURCES:
        target = out / f"mlx-{name}"
        shutil.rmtree(target, ignore_errors=True)
        mlx_lm.convert(str(root / "testdata" / "models" / name), str(target), quantize=True, q_bits=4, q_group_size=32,
                       quant_predicate=predicate())
        for extra in target.iterdir():
            if extra.name not in ("config.json", "model.safetensors", "model.safetensors.index.json"):
                extra.unlink()
        (target / "values.json").write_text(json.dumps(values(target), indent=1, sort_keys=True) + "\n")


main()
