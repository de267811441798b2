#!/usr/bin/env python3
"""Trains the embedded model, a qwen3_moe of 10 million parameters that writes Go documentation.

    train_tiny.py train  --work DIR [--minutes M] [--decay-steps N]   resumes from DIR/checkpoint.pt if there is one
    train_tiny.py export --work DIR --out DIR                         a Hugging Face folder of the averaged weights
    train_tiny.py check  --out DIR                                    logits equal to those of transformers?
    train_tiny.py sample --work DIR [--prompt TEXT]                   some text, to look at

Needs torch, tokenizers, safetensors and numpy; check also needs transformers. A checkpoint knows
how far each stream of text was read, so a resumed run sees the batches that an uninterrupted one would have seen.
"""

import argparse
import json
import math
import os
import pathlib
import signal
import sys
import time

# Threads that wait must sleep: spinning at low priority on a busy machine eats the share that the other thread needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch

import tiny_corpus
import tiny_model
import tiny_muon

SEED = 20261130
ROWS = {"doc": 3, "source": 1}  # rows of each kind in a batch; a row is one context of tokens
PEAK_LR = 2e-3
WARMUP_STEPS = 150
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)
AVERAGE_SHARE = 0.1  # the exported weights are an average over about the last tenth of the steps,
AVERAGE_STEPS = 300  # and at most over this many
REPORT_STEPS = 20
HELD_OUT_STEPS = 100
HELD_OUT_ROWS = 12
SAVE_SECONDS = 600


class Batches:
    """Rows of context + 1 tokens, cut from one stream per kind, in a new order and at a new offset every epoch."""

    def __init__(self, folder, context):
        self.context = context
        self.streams = {kind: np.load(folder / f"train_{kind}.npy") for kind in ROWS}

    def after(self, seen):
        """The next batch after seen[kind] rows of each kind."""
        rows = [self.row(kind, seen[kind] + i) for kind, n in ROWS.items() for i in range(n)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def row(self, kind, index):
        stream = self.streams[kind]
        per_epoch = (len(stream) - 1) // self.context - 1
        epoch, i = divmod(index, per_epoch)
        rng = np.random.default_rng([SEED, list(ROWS).index(kind), epoch])
        offset = rng.integers(self.context)
        begin = offset + rng.permutation(per_epoch)[i] * self.context
        return stream[begin:begin + self.context + 1]


def held_out_rows(folder, kind, context, most=None):
    stream = np.load(folder / f"held_out_{kind}.npy").astype(np.int64)
    count = (len(stream) - 1) // context
    rows = np.stack([stream[i * context:i * context + context + 1] for i in range(count)])
    return torch.from_numpy(rows[:most])


@torch.no_grad()
def mean_loss(model, rows):
    """Nats per token over rows of context + 1 tokens, and the standard error over rows."""
    losses = [float(model.loss(row[None, :-1], row[None, 1:])[0]) for row in rows]
    return float(np.mean(losses)), float(np.std(losses) / math.sqrt(len(losses)))


def make_optimizers(model):
    """Muon for the matrices of attention and experts, AdamW for embedding, routers and norms."""
    pairs, plain, embedded, vectors = [], [], [], []
    for name, p in model.named_parameters():
        kind = name.split(".")[-1]
        if p.dim() == 1:
            vectors.append(p)
        elif kind in ("embedding", "router"):
            embedded.append(p)
        else:
            (pairs if kind == "gate_up" else plain).append(p)
    return [
        tiny_muon.Muon([{"params": pairs, "split": 2}, {"params": plain}], lr=PEAK_LR, weight_decay=WEIGHT_DECAY),
        torch.optim.AdamW([{"params": embedded, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                          lr=PEAK_LR, betas=BETAS, fused=True),
    ]


class Run:
    """Everything that a checkpoint holds: model, averaged weights, optimiser, what was read, and the loss curve."""

    def __init__(self, config):
        self.model = tiny_model.Model(config, SEED)
        self.average = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.optimizers = make_optimizers(self.model)
        self.step = 0
        self.rows = dict.fromkeys(ROWS, 0)  # read so far
        self.seconds = 0.0
        self.decay_begin = None
        self.curve = []

    def save(self, path):
        state = {
            "model": self.model.state_dict(), "average": self.average, "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step, "rows": self.rows, "seconds": self.seconds, "decay_begin": self.decay_begin, "curve": self.curve,
            "rng": torch.get_rng_state(),
        }
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)

    def load(self, path):
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.step, self.rows, self.seconds = state["step"], state["rows"], state["seconds"]
        self.decay_begin, self.curve = state["decay_begin"], state["curve"]
        torch.set_rng_state(state["rng"])

    def learning_rate(self, decay_steps):
        """Warm-up, a plateau of open length, then (once asked for) a linear fall to zero."""
        rate = PEAK_LR * min(1.0, (self.step + 1) / WARMUP_STEPS)
        if decay_steps:
            rate *= max(0.0, 1 - (self.step - self.decay_begin) / decay_steps)
        return rate

    def advance(self, rows, rate):
        self.model.dtype = torch.bfloat16
        loss, unevenness = self.model.loss(rows[:, :-1], rows[:, 1:])
        (loss + self.model.config.balance * unevenness).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        self.rows = {kind: n + ROWS[kind] for kind, n in self.rows.items()}
        current = self.model.state_dict()
        weight = 1 / min(AVERAGE_STEPS, 1 + AVERAGE_SHARE * self.step)
        torch._foreach_lerp_(list(self.average.values()), [current[k] for k in self.average], weight)
        return float(loss.detach()), float(unevenness.detach())

    def tokens(self):
        return sum(self.rows.values()) * self.model.config.context

    def averaged(self):
        model = tiny_model.Model(self.model.config, SEED)
        model.load_state_dict(self.average)
        return model


def train(args):
    os.nice(19)
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    tiny_corpus.prepare(args.work / "corpus")
    run, path = Run(tiny_model.Config()), args.work / "checkpoint.pt"
    if path.exists():
        run.load(path)
    if args.decay_steps and run.decay_begin is None:
        run.decay_begin = run.step
    config = run.model.config
    batches = Batches(args.work / "corpus", config.context)
    held_out = {kind: held_out_rows(args.work / "corpus", kind, config.context, HELD_OUT_ROWS) for kind in ROWS}
    tokens_per_step = sum(ROWS.values()) * config.context
    print(f"parameters {sum(p.numel() for p in run.model.parameters())} step {run.step} "
          f"train tokens {({k: len(v) for k, v in batches.streams.items()})}", flush=True)

    stop = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    begin = saved = mark = time.monotonic()
    before, losses, uneven = run.seconds, [], []
    while not stop:
        now = time.monotonic()
        run.seconds = before + now - begin
        if args.minutes and now - begin > args.minutes * 60:
            break
        if args.decay_steps and run.step >= run.decay_begin + args.decay_steps:
            break
        if now - saved > SAVE_SECONDS:
            run.save(path)
            saved = now
        rate = run.learning_rate(args.decay_steps)
        loss, unevenness = run.advance(batches.after(run.rows), rate)
        losses.append(loss)
        uneven.append(unevenness)
        if run.step % REPORT_STEPS:
            continue
        line = (f"{time.strftime('%H:%M:%S')} step {run.step} tokens {run.tokens()} "
                f"loss {np.mean(losses):.4f} uneven {np.mean(uneven):.3f} lr {rate:.2e}")
        if run.step % HELD_OUT_STEPS == 0:
            model = run.averaged()
            model.dtype = torch.bfloat16
            scores = {kind: mean_loss(model, rows)[0] for kind, rows in held_out.items()}
            run.curve.append([run.step, float(np.mean(losses)), scores["doc"], scores["source"]])
            line += f" held-out doc {scores['doc']:.4f} source {scores['source']:.4f}"
        now = time.monotonic()
        print(f"{line} {len(losses) * tokens_per_step / (now - mark):.0f} tok/s", flush=True)
        mark, losses, uneven = now, [], []
    run.save(path)
    print(f"saved step {run.step} after {run.seconds / 3600:.2f} h", flush=True)


def load_run(work):
    run = Run(tiny_model.Config())
    run.load(work / "checkpoint.pt")
    return run


def export(args):
    from safetensors.torch import save_file
    torch.set_num_threads(args.threads)
    run = load_run(args.work)
    config, corpus = run.model.config, args.work / "corpus"
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.to(torch.bfloat16).contiguous()
               for k, v in tiny_model.hub_tensors(run.average, config).items()}
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    write_json(args.out / "config.json", tiny_model.hub_config(config))
    write_json(args.out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 0})
    write_json(args.out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.context,
        "eos_token": tiny_corpus.END_OF_TEXT, "pad_token": tiny_corpus.END_OF_TEXT,
        "add_bos_token": False, "clean_up_tokenization_spaces": False,
    })
    for name in ("tokenizer.json", "held_out.txt"):
        (args.out / name).write_bytes((corpus / name).read_bytes())

    rounded = tiny_model.Model(config, SEED)
    rounded.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in run.average.items()})
    scores = {kind: mean_loss(rounded, held_out_rows(corpus, kind, config.context)) for kind in ROWS}
    (args.out / "README.md").write_text(card(run, scores, corpus))
    print(f"{args.out}: step {run.step}, held-out {scores}")


def card(run, scores, corpus):
    """The model card."""
    c = run.model.config
    count = {(split, kind): len(np.load(corpus / f"{split}_{kind}.npy"))
             for split in ("train", "held_out") for kind in ROWS}
    parameters = sum(p.numel() for p in run.model.parameters())
    annealed = "after the learning rate fell to zero" if run.decay_begin is not None else (
        "on the learning rate's plateau, weights averaged; a later export will be better")
    held_out = (corpus / "held_out.txt").read_text().split()
    return f"""# tiny: a small mixture-of-experts model of Go documentation

A qwen3_moe of {parameters / 1e6:.1f} million parameters, trained from nothing for this project's tests and demo. It continues text
that looks like Go documentation. It knows nothing and answers no questions.

| | |
|---|---|
| architecture | {c.layers} layers, hidden {c.hidden}, {c.heads} heads of {c.head_dim} ({c.kv_heads} for keys and values), {c.experts} experts of width {c.expert_width}, {c.top_k} per token, tied embedding |
| tokenizer | byte-level BPE of {c.vocab}, trained on the training files |
| context | {c.context} tokens |
| weights | bf16, safetensors, names of the hub |
| data | source and documentation of the Go standard library, {tiny_corpus.go_version()}: {count['train', 'doc']} tokens of documentation laid out as `go doc` does, {count['train', 'source']} tokens of source |
| seen | {run.tokens()} tokens in {run.step} steps ({run.rows['doc'] * c.context} of documentation, {run.rows['source'] * c.context} of source), {run.seconds / 3600:.1f} hours on two cores |
| state | {annealed} |
| held-out loss | documentation {scores['doc'][0]:.3f} ± {scores['doc'][1]:.3f}, source {scores['source'][0]:.3f} ± {scores['source'][1]:.3f} nats per token (of {count['held_out', 'doc']} and {count['held_out', 'source']} tokens, contexts of {c.context}, standard error over contexts) |
| seed | {SEED} |
| script | `scripts/train_tiny.py`, with `tiny_corpus.py`, `tiny_model.py` and `tiny_muon.py` |
| licence | the training text is under the BSD-3-Clause licence of the Go authors, reproduced below; the weights are offered under the same terms |

## Prompts

Text in the layout that `go doc -all` prints, for instance

    package strings // import "strings"

    func Clone(s string) string
        Clone returns

In training every file was followed by `<|endoftext|>`, so that token ends a generation, and a prompt may begin with it.

## Held-out files

About one file in {tiny_corpus.HELD_OUT_ONE_IN}, chosen by the SHA-256 of its path, took no part in the training of the model or of the tokenizer (also in
`held_out.txt`). Files for other operating systems may resemble them.

{chr(10).join('- ' + p for p in held_out)}

## Text to measure with

`held_out/` has text of those files in three parts that share none (`fit`, `link` and `test.jsonl`, made by `scripts/held_out_text.py`),
for `sb-calibrate`: a model of Go documentation says little about the built-in text.

## Licence of the training text

{(tiny_corpus.goroot() / 'LICENSE').read_text().strip()}
"""


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def check(args):
    """Compares an exported folder in our arithmetic with transformers, both in float32 on the stored weights."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_num_threads(args.threads)
    theirs = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32)
    config = tiny_model.Config()
    ours = tiny_model.Model(config, SEED)
    stored = load_file(args.out / "model.safetensors")
    ours.load_state_dict(from_hub(stored, config))
    text = (pathlib.Path(__file__).parent / "tiny_corpus.py").read_text()
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    if tokenizer.decode(ids, skip_special_tokens=False) != text or AutoTokenizer.from_pretrained(args.out)(text).input_ids != ids:
        sys.exit("check: the tokenizer does not round-trip, or transformers disagrees")
    ids = torch.tensor([ids[:config.context]])
    with torch.no_grad():
        a, b = ours.logits(ids), theirs(ids).logits
    worst = float((a - b).abs().max() / b.std())
    print(f"largest difference of logits {worst:.2e} x std over {ids.shape[1]} positions")
    if worst > 1e-3:
        sys.exit("check: the logits differ")


def from_hub(stored, config):
    """The inverse of hub_tensors."""
    model = tiny_model.Model(config, SEED)
    state = model.state_dict()
    for name, tensor in tiny_model.hub_tensors(state, config).items():
        tensor.copy_(stored[name].float())  # the views of hub_tensors write through to state
    return state


@torch.no_grad()
def sample(args):
    from tokenizers import Tokenizer
    torch.set_num_threads(args.threads)
    tokenizer = Tokenizer.from_file(str(args.work / "corpus" / "tokenizer.json"))
    model = load_run(args.work).averaged()
    ids = tokenizer.encode(args.prompt).ids or [0]
    generator = torch.Generator().manual_seed(args.seed)
    for _ in range(args.tokens):
        logits = model.logits(torch.tensor([ids[-model.config.context:]]))[0, -1]
        if args.temperature == 0:
            ids.append(int(logits.argmax()))
        else:
            ids.append(int(torch.multinomial((logits / args.temperature).softmax(-1), 1, generator=generator)))
        if ids[-1] == 0:
            break
    print(tokenizer.decode(ids))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["train", "export", "check", "sample"])
    parser.add_argument("--work", type=pathlib.Path, help="folder of the corpus, the checkpoint and the log")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the exported model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=0, help="train at most this long (default: until stopped)")
    parser.add_argument("--decay-steps", type=int, default=0, help="let the learning rate fall to zero, then stop")
    parser.add_argument("--prompt", default="package strings // import \"strings\"\n\n")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.work is None and args.verb != "check":
        parser.error(f"{args.verb} needs --work")
    if args.out is None and args.verb in ("export", "check"):
        parser.error(f"{args.verb} needs --out")
    {"train": train, "export": export, "check": check, "sample": sample}[args.verb](args)


if __name__ == "__main__":
    main()
