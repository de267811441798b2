#!/usr/bin/env python3
"""What mlx-lm writes greedily, in float32: after sb-pack export, the same as sb-run does from the store.

    sb-pack export --mlx m.sb -o m-mlx
    mlx_greedy.py m-mlx --prompt TEXT -n 24
    sb-run m.sb --mode exact --activations f32 --kv f32 --raw -p TEXT -n 24

(of a store whose plan has one tier for each op: exact computes with the top ones, the folder has the default ones).

    pip install mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2
"""

import argparse

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("-n", type=int, default=24)
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, tokenizer = load(args.folder)
    floats = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(floats, model.parameters()))
    cache, ids = make_prompt_cache(model), []
    step = tokenizer.encode(args.prompt, add_special_tokens=False)
    for _ in range(args.n):
        ids.append(int(mx.argmax(model(mx.array([step]), cache=cache)[0, -1])))
        step = ids[-1:]
    print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
