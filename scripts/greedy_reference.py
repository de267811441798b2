#!/usr/bin/env python3
"""Greedy decoding with transformers in float32, to hold our output against.

    greedy_reference.py MODEL_DIR (--prompt TEXT | --ids 1,2,3 | --prompt-file FILE) [-n N] [--logits FILE]

Prints one JSON object: the ids of the prompt, the generated ids (end-of-text tokens of the model stop it unless
--ignore-eos), the text, and the least gap between the two best logits in units of std(logits), which tells how far
from a tie the comparison is. --logits writes the logits of every position of the prompt as little-endian float32
[tokens, vocab]. Needs torch, transformers, safetensors.
"""

import argparse
import json
import math

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer


@torch.no_grad()
def decode(model, ids, count, ignore_eos):
    """Generated ids and the least margin of a choice."""
    stop = {"eos_token_id": None} if ignore_eos else {}
    prompt = torch.tensor([ids])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=count,
                         pad_token_id=0, return_dict_in_generate=True, output_logits=True, **stop)
    margin = math.inf
    for logits in out.logits:
        top = logits[0].topk(2).values
        margin = min(margin, float((top[0] - top[1]) / logits.std()))
    return out.sequences[0, len(ids):].tolist(), margin


@torch.no_grad()
def prompt_logits(model, ids):
    return model(torch.tensor([ids])).logits[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="Hugging Face folder")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", help="text; special tokens in it are recognised, none are added")
    source.add_argument("--prompt-file", help="the same from a file")
    source.add_argument("--ids", help="token ids separated by commas")
    parser.add_argument("-n", "--max-tokens", type=int, default=32)
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--logits", help="file for the logits of the prompt")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()

    tokenizer = None
    if args.ids is None:
        tokenizer = Tokenizer.from_file(f"{args.model}/tokenizer.json")
        text = args.prompt if args.prompt_file is None else open(args.prompt_file, encoding="utf-8").read()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
    else:
        ids = [int(i) for i in args.ids.split(",")]
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    generated, margin = decode(model, ids, args.max_tokens, args.ignore_eos)
    logits = prompt_logits(model, ids)
    if args.logits:
        np.ascontiguousarray(logits.numpy(), dtype="<f4").tofile(args.logits)
    print(json.dumps({
        "prompt_ids": ids, "ids": generated, "text": tokenizer.decode(generated) if tokenizer else None,
        "least_margin_std": margin, "logits_std": float(logits.std()),
    }, ensure_ascii=False))


if __name__ == "__main__":
    main()
