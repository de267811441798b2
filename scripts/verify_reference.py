#!/usr/bin/env python3
"""The KL that `sb-calibrate verify --activations f32` measures, computed by transformers instead.

    store_to_hf.py STORE MODEL DIR                      the store's weights as float32
    verify_reference.py MODEL DIR --text FILE.jsonl --tokens N --sequence N

MODEL is the folder that the store was made from, FILE.jsonl has a member "text" a line. Sequences are cut as sb-calibrate
cuts them: documents in turn, each sequence from an empty context. Prints KL(MODEL || DIR) in nats per token with its standard
error over documents, and the perplexities. Needs torch and transformers.
"""

import argparse
import json
import math
import pathlib

import torch
import transformers

SHORTEST = 16  # tokens; as minSequence of pkg/calib


def sequences(tokenizer, texts, length, want):
    """(document, ids) in the order of pkg/calib's Tokenize."""
    with_special = tokenizer("a").input_ids
    plain = tokenizer("a", add_special_tokens=False).input_ids
    first = with_special[:1] if len(with_special) > len(plain) else []
    queues = [tokenizer(t, add_special_tokens=False).input_ids for t in texts]
    queues = [q for q in queues if len(q) >= SHORTEST]
    out, tokens, again = [], 0, True
    while again and tokens < want:
        again = False
        for i, q in enumerate(queues):
            if len(q) < SHORTEST or tokens >= want:
                continue
            n = min(length - len(first), len(q))
            out.append((i, first + q[:n]))
            queues[i] = q[n:]
            tokens += len(first) + n - 1
            again = True
    return out


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("quantized")
    p.add_argument("--text", required=True)
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--sequence", type=int, default=256)
    o = p.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(o.model)
    texts = [json.loads(line)["text"] for line in pathlib.Path(o.text).read_text().splitlines()]
    load = lambda path: transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    reference, quantized = load(o.model), load(o.quantized)
    kl, tokens, nll, reference_nll = {}, {}, 0.0, 0.0
    for document, ids in sequences(tokenizer, texts, o.sequence, o.tokens):
        x = torch.tensor([ids])
        a, b = (m(x).logits[0, :-1].double().log_softmax(-1) for m in (reference, quantized))
        each = (a.exp() * (a - b)).sum(-1)
        kl[document] = kl.get(document, 0.0) + float(each.sum())
        tokens[document] = tokens.get(document, 0) + len(ids) - 1
        follow = x[0, 1:, None]
        nll -= float(b.gather(-1, follow).sum())
        reference_nll -= float(a.gather(-1, follow).sum())
    n, docs = sum(tokens.values()), len(kl)
    mean = sum(kl.values()) / n
    off = sum((kl[d] - mean * tokens[d]) ** 2 for d in kl)
    error = math.sqrt(off * docs / (docs - 1)) / n if docs > 1 else 0.0
    print(json.dumps({"kl": mean, "kl_error": error, "tokens": n, "documents": docs,
                      "perplexity": math.exp(nll / n), "reference_perplexity": math.exp(reference_nll / n)}))


if __name__ == "__main__":
    main()
