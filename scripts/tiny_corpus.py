"""Corpus and tokenizer of the embedded model.

The text is the Go standard library of the toolchain on this machine, in two renderings:

  doc     declarations with their documentation and without bodies, laid out as `go doc -all` prints them
  source  whole files without the licence header, and the documents in GOROOT/doc

Files are split by a hash of their path: about one in 25 is held out, from the training and from the
tokenizer. Nothing here depends on the clock or on the order in which a file system lists a folder.
"""

import hashlib
import html
import pathlib
import re
import subprocess

import numpy as np

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
HELD_OUT_ONE_IN = 25

# The split of Qwen2 and Qwen3: contractions, words with one leading mark, single digits, marks, line ends, spaces.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

MAX_FILE_BYTES = 400_000  # larger ones are tables
GENERATED = re.compile(r"Code generated|DO NOT EDIT|created by cgo -godefs|mkerrors|mksysnum", re.I)


def goroot():
    """The root folder of the Go toolchain on this machine."""
    return pathlib.Path(subprocess.check_output(["go", "env", "GOROOT"], text=True).strip())


def go_version():
    return subprocess.check_output(["go", "version"], text=True).split()[2]


def library_files(root):
    """Paths of the files in the corpus, relative to GOROOT, sorted."""
    kept = []
    for path in sorted(root.glob("src/**/*.go")):
        relative = path.relative_to(root)
        if not path.is_file() or {"testdata", "vendor"} & set(relative.parts):
            continue
        if relative.parts[1] == "cmd" and relative.name not in ("doc.go", "alldocs.go"):
            continue
        is_example = relative.name.startswith("example") and relative.name.endswith("_test.go")
        if relative.name.endswith("_test.go") and not is_example:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if len(text) <= MAX_FILE_BYTES and is_prose_or_code(text) and (
            relative.name == "alldocs.go" or not GENERATED.search(text[:600])
        ):
            kept.append(relative.as_posix())
    kept += [p.relative_to(root).as_posix() for p in sorted(root.glob("doc/*.html"))]
    kept += [p.relative_to(root).as_posix() for p in sorted(root.glob("doc/**/*.md"))]
    return kept


def is_prose_or_code(text):
    """False for tables: more than a fifth of the characters are digits."""
    return sum(c.isdigit() for c in text) * 5 < len(text)


def is_held_out(path):
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def without_licence(text):
    return re.sub(r"\A// Copyright [^\n]*\n(//[^\n]*\n)*\n*", "", text)


def doc_rendering(path, text):
    """The documentation of one Go file, laid out as `go doc -all` does; empty if it documents nothing."""
    import_path = "/".join(path.split("/")[1:-1])
    body, comment, documented = [], [], 0
    package = None
    lines = without_licence(text).split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("//"):
            if not re.match(r"//(go:|line |export |sys|\s*\+build)", line):
                comment.append(line[2:].removeprefix(" "))
            i += 1
            continue
        if line.startswith("/*"):
            i, comment = block_comment(lines, i)
            continue
        if match := re.match(r"package (\w+)", line):
            package = match[1]
            if comment:
                body.append("\n".join(comment).strip("\n"))
                documented += 1
        elif re.match(r"(func|type|const|var) ", line):
            declaration, i = declaration_at(lines, i)
            exported = re.match(r"(func (\([^)]*\) )?|type |const |var )(\(|[A-Z])", line)
            if comment or exported:
                entry = declaration
                if comment:
                    entry += "\n" + "\n".join(("    " + c).rstrip() for c in comment).rstrip()
                    documented += 1
                body.append(entry)
            comment = []
            continue
        comment = []
        i += 1
    if not documented or package is None:
        return ""
    return f'package {package} // import "{import_path}"\n\n' + "\n\n".join(body) + "\n"


def block_comment(lines, i):
    """The text of the /* */ comment that begins on line i, and the line after it."""
    out = [lines[i][2:].lstrip()]
    while "*/" not in lines[i] and i + 1 < len(lines):
        i += 1
        out.append(lines[i])
    out[-1] = out[-1].split("*/")[0].rstrip()
    return i + 1, out


def declaration_at(lines, i):
    """The declaration that begins on line i, a function without its body, and the line after it.

    gofmt indents everything inside a declaration, so the first line that is not indented ends it."""
    out = [lines[i]]
    end = i + 1
    if lines[i].rstrip().endswith(("{", "(", "[", "`")):
        while end < len(lines) and (not lines[end] or lines[end][0] in " \t/"):
            out.append(lines[end])
            end += 1
        if end < len(lines):
            out.append(lines[end])
            end += 1
    if not lines[i].startswith("func "):
        return "\n".join(out), end
    if out[0].rstrip().endswith("{"):
        return out[0].rstrip()[:-1].rstrip(), end
    if len(out) > 1:  # the parameters stand on lines of their own, the body follows the closing line
        signature = "\n".join(out)
        if signature.endswith("{"):
            while end < len(lines) and lines[end] != "}":
                end += 1
            end += 1
        return signature.removesuffix("{").rstrip(), end
    return re.split(r" \{ ", out[0])[0], end


def plain_html(text):
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    text = re.sub(r"<[^>]+>", "", text)
    return re.sub(r"\n{3,}", "\n\n", html.unescape(text)).strip() + "\n"


def renderings(root, path):
    """The (kind, text) pairs that a file contributes."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    if path.endswith(".html"):
        return [("doc", plain_html(text))]
    if path.endswith(".md"):
        return [("doc", text)]
    pairs = [("source", without_licence(text))]
    if not path.endswith("_test.go"):
        pairs.append(("doc", doc_rendering(path, text)))
    return [(kind, t) for kind, t in pairs if t.strip()]


def load(root):
    """{"train": {kind: [text]}, "held_out": {kind: [text]}} and the sorted paths of the held-out files."""
    texts = {split: {"doc": [], "source": []} for split in ("train", "held_out")}
    held_out = []
    for path in library_files(root):
        split = "held_out" if is_held_out(path) else "train"
        if split == "held_out":
            held_out.append(path)
        for kind, text in renderings(root, path):
            texts[split][kind].append(text)
    return texts, held_out


def train_tokenizer(texts):
    """Byte-level BPE over training texts, <|endoftext|> as id 0."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[END_OF_TEXT], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))
    return tokenizer


def encode(tokenizer, texts):
    """One stream of token ids, every text followed by <|endoftext|>."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = []
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        ids.extend(encoding.ids)
        ids.append(end)
    return np.asarray(ids, dtype=np.uint16)


def prepare(folder):
    """Writes tokenizer.json, {split}_{kind}.npy and held_out.txt into folder; later calls find them there."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "held_out.txt"
    if done.exists():
        return
    texts, held_out = load(goroot())
    tokenizer = train_tokenizer(texts["train"]["doc"] + texts["train"]["source"])
    tokenizer.save(str(folder / "tokenizer.json"))
    for split, kinds in texts.items():
        for kind, chunk in kinds.items():
            np.save(folder / f"{split}_{kind}.npy", encode(tokenizer, chunk))
    done.write_text("\n".join(held_out) + "\n")
