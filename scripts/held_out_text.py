#!/usr/bin/env python3
"""The held-out text of the embedded model, in three parts that share no file.

    held_out_text.py DIR

Writes DIR/fit.jsonl, link.jsonl and test.jsonl for sb-calibrate's --text and --link-text: files of the Go toolchain on this
machine that neither the model nor its tokenizer saw (tiny_corpus.py), a member "text" a line, split by a hash of their path.
"""

import hashlib
import json
import pathlib
import sys

import tiny_corpus

PARTS = ("fit", "link", "test")
SHORTEST = 800  # characters: below it hardly a token has context


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    root = tiny_corpus.goroot()
    parts = {part: [] for part in PARTS}
    for path in tiny_corpus.library_files(root):
        if tiny_corpus.is_held_out(path):
            part = PARTS[int.from_bytes(hashlib.sha256(path.encode()).digest()[4:8], "big") % len(PARTS)]
            parts[part] += [text for _, text in tiny_corpus.renderings(root, path) if len(text) >= SHORTEST]
    for part, texts in parts.items():
        (out / f"{part}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")


if __name__ == "__main__":
    main()
