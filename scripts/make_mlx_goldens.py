#!/usr/bin/env python3
"""Makes testdata/mlx_lm: what mlx-lm computes from checkpoints of testdata/models that MLX quantized.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 numpy
    make_mlx_goldens.py [--out testdata/mlx_lm] [--exports] [NAME...]

With --exports, from the folders in testdata/mlx_lm/exports, which sb-pack export wrote (go test ./pkg/store -run MLXExport
-update), as they are; NAME is then exports/NAME.

Every linear layer and the embedding are 4-bit codes in groups of 32 with the checkpoint's type for scales; routers and
norms stay as they are. Then all that is not codes becomes float32, so that activations are.

NAME.json: `bits`, `group`, and for the prompt `short` of the model's golden.json the `ids`, the logits at `positions`
(NAME.logits.f32, little-endian float32 [positions, vocab]), their standard deviation over all positions, the 16 tokens
that greedy decoding appends, and the least gap between the two best logits on that way in units of the deviation.
"""

import argparse
import json
import pathlib

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

BITS, GROUP, GREEDY_TOKENS = 4, 32, 16
LEAST_GREEDY_MARGIN = 2e-3  # as in make_goldens.py
MODELS = ["llama-gqa", "qwen3moe"]  # those with weights in bf16 and keys that mlx-lm reads


def load(folder, quantize):
    model, _ = load_model(folder)
    if quantize:
        quantized = lambda path, module: hasattr(module, "to_quantized") and not path.endswith("mlp.gate")
        nn.quantize(model, group_size=GROUP, bits=BITS, class_predicate=quantized)
    floats = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(floats, model.parameters()))
    return model


def golden(folder, out, export=None):
    made = json.loads((folder / "golden.json").read_text())
    prompt = next(p for p in made["prompts"] if p["name"] == "short")
    model, ids = load(export or folder, export is None), prompt["ids"]
    cache = make_prompt_cache(model)
    logits = model(mx.array([ids]), cache=cache)[0]
    assert logits.dtype == mx.float32, logits.dtype
    std = float(np.array(logits).std())
    greedy, margin, last = [], np.inf, logits[-1]
    for _ in range(GREEDY_TOKENS):
        best = np.sort(np.array(last))[-2:]
        margin = min(margin, float(best[1] - best[0]) / std)
        greedy.append(int(mx.argmax(last)))
        last = model(mx.array([greedy[-1:]]), cache=cache)[0, -1]
    assert margin >= LEAST_GREEDY_MARGIN, f"{folder.name}: a greedy token hangs on {margin} of std(logits)"
    positions = prompt["logits_positions"]
    name = folder.name
    np.array(logits)[positions].astype("<f4").tofile(out / f"{name}.logits.f32")
    text = {
        "made_by": "scripts/make_mlx_goldens.py",
        "mlx": mx.__version__,
        "mlx_lm": mlx_lm.__version__,
        **({} if export else {"bits": BITS, "group": GROUP}),
        "ids": ids,
        "positions": positions,
        "logits_std": std,
        "greedy_ids": greedy,
        "greedy_margin_std": margin,
    }
    (out / f"{name}.json").write_text(json.dumps(text, indent=1) + "\n")
    print(f"{name}: std {std:.4g}, greedy {greedy}, margin {margin:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="testdata/mlx_lm")
    parser.add_argument("--exports", action="store_true")
    parser.add_argument("names", nargs="*", default=MODELS)
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        folder, exports = pathlib.Path("testdata/models") / name, args.out / "exports"
        if args.exports:
            golden(folder, exports, exports / name)
        else:
            golden(folder, args.out)


if __name__ == "__main__":
    main()
