#!/usr/bin/env python3
"""Golden tokens for pkg/tokenizer, made by Hugging Face's tokenizers.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    scripts/make_tokenizer_goldens.py                     # pkg/tokenizer/testdata: tiny tokenizers and their goldens
    scripts/make_tokenizer_goldens.py --compare DIR FILE.json...
                                                          # goldens of real tokenizer.json files, for
                                                          # TOKENIZER_GOLDENS=DIR go test -run Reference ./pkg/tokenizer

The tiny tokenizers are trained on text that the script holds itself, so that it gives the same files anywhere.
"""

import argparse
import base64
import io
import json
import os
import random
import shutil
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TESTDATA = os.path.join(HERE, "..", "pkg", "tokenizer", "testdata")

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")

TRAINING = """
A tokenizer turns text into numbers. It reads bytes, joins the pairs that were seen most often, and writes the number of each
part that is left. The order of the joins is what it has learned; everything else is counting. It's small, it doesn't think,
and we'll find that it can't spell, because it never sees a letter once letters have become a word.
func encode(word []byte) []int { for i := range word { ids = append(ids, lookup(word[i])) }; return ids }
if err != nil { return fmt.Errorf("reading %s: %w", name, err) }
for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }
def merge(pairs): return sorted(pairs, key=lambda p: (rank[p], p[0]))
{"name": "tiny", "version": 1, "tokens": [1, 2, 3], "merges": {"a b": 0, "b c": 1}}
Der Zug fährt über die Brücke, und die Kinder zählen die Bögen. Größe, Maß und Übung.
L'été dernier, nous avons mangé des crêpes à la plage, où l'eau était très froide.
El niño soñó con montañas y ríos; mañana volverá a la ciudad.
Мы читаем книгу о море и о людях, которые живут у моря.
今天天气很好，我们去公园散步。人工知能は毎日少しずつ賢くなります。
The year 2024 had 366 days, 8784 hours and 31622400 seconds; pi is 3.14159, e is 2.71828.
"""


def training_text():
    """The training text in a few variations, so that merges have counts to differ by."""
    lines = TRAINING.strip().split("\n")
    rng = random.Random(1)
    for _ in range(40):
        rng.shuffle(lines)
        yield "\n".join(lines[: rng.randrange(4, len(lines))])


# --- test strings ---------------------------------------------------------------------------------------------------------

FIXED = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\n\n\n",
    " \n",
    "\n ",
    " \n \n ",
    "\t\tx",
    "a",
    " a",
    "a ",
    "  a  b   c    d ",
    "Hello, world!",
    "Hello world\n\nHow are you?\n",
    "don't can't I'm you're we've he'll she'd it's",
    "DON'T CAN'T I'M YOU'RE WE'VE HE'LL SHE'D IT'S",
    "'s't're 'S'T'RE 'x 'ſ 'K ''s '",
    "12345 1 22 333 4444 3.14159 1,000,000 0x1F 1e-9",
    "٣٤٥ ४५६ Ⅷ ½ ²³ ①",
    "if (x == 0) { return -1; } // done",
    "\tfor i := range n {\n\t\tsum += a[i]*b[i]\n\t}\n",
    "x**2  # comment\n\n\n    y = f(x)\n",
    "https://example.com/path?query=1&other=%20#frag",
    "naïve café Ångström Zürich São Paulo",
    "nai\u0308ve cafe\u0301 A\u030angstro\u0308m",
    "Привет, мир! Как дела?",
    "今天天气很好。我们去公园吧！",
    "私は学生です。カタカナとひらがな。",
    "한국어 문장입니다. \u1112\u1161\u11ab",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "😀😃😄 👨‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️",
    "\u200b\u200c\u200d\ufeff\u00a0\u2003\u3000\u0085\u2028",
    "a\u00a0b\u2003c\u3000d",
    "\x00\x01\x02\x1f\x7f\x80\x9f",
    "ﬁ ﬂ ǅ İ ı ẞ ß ŉ",
    "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b <|im_end|> c<|im_end|",
    "<|im_start|<|im_start|>>",
    "<s>[INST] hi [/INST]</s><unk><pad>",
    "<think>\nhm\n</think>\n\nok",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc",
    "====================================================================",
    "                                                                      x",
    "Ġ Ċ ▁ <0x41> <0x0A> \u0120the",
    "\U0010ffff\ue000\ufffd\ufffe",
]

RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0x09, 0x0D), (0xA0, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF),
    (0x2000, 0x206F), (0x2070, 0x209F), (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x22FF), (0x2460, 0x24FF),
    (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFB4F),
    (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
]  # fmt: skip

WORDS = (
    "the of and to in is that it's don't I'll we've WORLD Hello token memory expert byte stream 42 1999 2048 3.5 "
    "func return range := != <= // /* */ {} [] () ; \\n \"quoted\" 'single' `back` $HOME %d #! @ & | ^ ~ "
    "für über naïve café été niño Москва книга 東京 你好 한국 नमस्ते 😀 👩‍💻 … — « » “ ”"
).split()


def unassigned(c):
    """Whether a character is one that Unicode versions disagree on: not assigned in the one that Python knows."""
    import unicodedata

    return unicodedata.category(c) == "Cn"


def random_char(rng):
    while True:
        low, high = rng.choice(RANGES)
        c = chr(rng.randint(low, high))
        if not unassigned(c):
            return c


def random_string(rng, specials):
    kind = rng.randrange(6)
    if kind == 0:  # characters from everywhere
        return "".join(random_char(rng) for _ in range(rng.randrange(1, 40)))
    if kind == 1:  # words and white space
        spaces = [" ", " ", " ", "  ", "\n", "\n\n", "\t", " \n", "\r\n", "   ", "", "\u00a0"]
        return "".join(rng.choice(WORDS) + rng.choice(spaces) for _ in range(rng.randrange(1, 25)))
    if kind == 2:  # white space, digits and apostrophes in runs
        return "".join(rng.choice(" \t\n\r 01a'sSt") * rng.randrange(1, 6) for _ in range(rng.randrange(1, 20)))
    if kind == 3:  # one script, with spaces
        low, high = rng.choice(RANGES)
        pool = [chr(c) for c in range(low, min(high, low + 400) + 1) if not unassigned(chr(c))]
        return "".join(rng.choice(pool) if rng.random() < 0.8 else " " for _ in range(rng.randrange(1, 40)))
    if kind == 4:  # special tokens as text among others
        parts = []
        for _ in range(rng.randrange(1, 8)):
            t = rng.choice(specials) if specials and rng.random() < 0.6 else rng.choice(WORDS)
            if rng.random() < 0.2 and len(t) > 2:
                t = t[: rng.randrange(1, len(t))]
            parts.append(t + rng.choice(["", "", " ", "\n", "  "]))
        return "".join(parts)
    # ASCII noise
    return "".join(chr(rng.randint(0x20, 0x7E)) for _ in range(rng.randrange(1, 60)))


def strings(count, specials, seed):
    rng = random.Random(seed)
    out = list(FIXED)
    while len(out) < count:
        s = random_string(rng, specials)
        if not any(0xD800 <= ord(c) <= 0xDFFF for c in s):
            out.append(s)
    return out


# --- goldens --------------------------------------------------------------------------------------------------------------


def goldens(tok, count, seed):
    """One case per string: as plain text, and as a prompt with special tokens parsed and added, and that decoded.

    A prompt equal to the plain tokens is left out, and so is what it decodes to if that is the text.
    """
    added = json.loads(tok.to_str())["added_tokens"]
    specials = [t["content"] for t in added][:64] + [t["content"] for t in added if not t["special"]][:32]
    cases = []
    for s in strings(count, specials, seed):
        tok.encode_special_tokens = True
        plain = tok.encode(s, add_special_tokens=False).ids
        tok.encode_special_tokens = False
        prompt = tok.encode(s, add_special_tokens=True).ids
        decoded = tok.decode(prompt, skip_special_tokens=False)
        case = {"text": s, "plain": plain}
        if prompt != plain:
            case["prompt"] = prompt
        if decoded != s:
            case["decoded"] = decoded
        cases.append(case)
    return cases


def write_goldens(path, cases):
    with open(path, "w", encoding="utf-8") as f:
        for case in cases:
            f.write(json.dumps(case, ensure_ascii=True, separators=(",", ":")) + "\n")


# --- tiny tokenizers ------------------------------------------------------------------------------------------------------

CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train(tok, size, specials, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    tok.train_from_iterator(training_text(), trainer)
    return tok


def byte_level(pre, normalizer=None, **model):
    tok = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return tok


def smollm():
    """As SmolLM2: digits one by one, then GPT-2."""
    pre = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return train(byte_level(pre), 640, CHATML, pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    """As GPT-2, with a prefix space and BOS from a template; added tokens with every flag."""
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    train(tok, 560, ["<|endoftext|>", "<pad>"], pre_tokenizers.ByteLevel.alphabet())
    tok.add_tokens([
        AddedToken("<think>", normalized=False),
        AddedToken("</think>", normalized=False),
        AddedToken("[L]", lstrip=True, normalized=False),
        AddedToken("[R]", rstrip=True, normalized=False),
        AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False),
        AddedToken("token", single_word=True, normalized=False),
        AddedToken("<|im", normalized=False),
        AddedToken("<|im_start|>", normalized=False),
        AddedToken("caf\u00e9", normalized=True),
    ])  # fmt: skip
    tok.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|endoftext|> $A <pad>", pair="<|endoftext|> $A <pad> $B:1 <pad>:1",
            special_tokens=[("<|endoftext|>", tok.token_to_id("<|endoftext|>")), ("<pad>", tok.token_to_id("<pad>"))],
        ),
    ])  # fmt: skip
    return tok


def qwen2():
    """As Qwen 2: NFC, one digit at a time; a token that only its normalized form shows."""
    pre = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok = byte_level(pre, normalizers.NFC())
    train(tok, 600, CHATML, pre_tokenizers.ByteLevel.alphabet())
    tok.add_tokens([AddedToken("cafe\u0301", normalized=True)])
    return tok


def llama3():
    """As Llama 3: numbers up to three digits, words that are tokens stay whole, BOS."""
    pre = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok = byte_level(pre)
    train(tok, 620, ["<|begin_of_text|>", "<|eot_id|>"], pre_tokenizers.ByteLevel.alphabet())
    # A vocabulary with tokens that no merges reach: they count only if whole words do.
    d = json.loads(tok.to_str())
    top = max(d["model"]["vocab"].values()) + 1
    for i, word in enumerate(["\u0120unreachable", "Hello", "\u0120world"]):
        d["model"]["vocab"][word] = top + i
    d["model"]["ignore_merges"] = True
    tok = Tokenizer.from_str(json.dumps(d))
    tok.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", tok.token_to_id("<|begin_of_text|>"))],
    )  # fmt: skip
    return tok


def llama2():
    """As Llama 2: SentencePiece's BPE without a pre-tokenizer, bytes for unknown characters."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    train(tok, 560, specials, [])
    tok.pre_tokenizer = None
    d = json.loads(tok.to_str())
    d["added_tokens"] = d["added_tokens"][:3]
    tok = Tokenizer.from_str(json.dumps(d))
    tok.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tok.token_to_id("<s>"))]
    )
    return tok


def unknown():
    """Characters without a token, one by one; behaviours of Split; a decoder that strips each token."""
    tok = Tokenizer(models.BPE(unk_token="?", fuse_unk=False))
    tok.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s+"), behavior="removed"),
        pre_tokenizers.Split(Regex(r"[.,;:]"), behavior="merged_with_previous"),
        pre_tokenizers.Split("(", behavior="merged_with_next"),
        pre_tokenizers.Split(Regex(r"[=!<>]"), behavior="contiguous"),
        pre_tokenizers.Split(Regex(r"\p{L}+"), behavior="removed", invert=True),
    ])  # fmt: skip
    tok.decoder = decoders.Strip("e", 1, 0)
    return train(tok, 120, ["?", "<|im_end|>"], list("abcdefghijklmnopqrstuvwxyz"))


def falcon():
    """The byte-level step in the middle of the pre-tokenizer, before digits are looked for in its alphabet."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
    ])  # fmt: skip
    tok = train(byte_level(pre), 540, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet())
    tok.decoder = decoders.Sequence([decoders.ByteLevel()])
    return tok


def clip():
    """As CLIP: a suffix ends each word."""
    tok = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"), behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|startoftext|>", "<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>")  # fmt: skip
    tok.train_from_iterator(training_text(), trainer)
    return tok


# Rules of a normalizer of SentencePiece: characters in hexadecimal and what they become.
RULES = """FB01\t66 69\n00BD\t31 2F 32\nA0\t20\n9\t20\nA\t20\nD\t20\n3000\t20\n200B\t20\nFF21\t41\n300\t\n65 301\tE9
41 30A\tC5\n2460\t31\n2026\t2E 2E 2E\nDF\t73 73\n600\t78\nE3F\t62\n1F600\t3A 29\n41\t61\n"""


def fields(message):
    """The fields of a Protocol Buffers message: numbers and values."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at : at + size]
        at += size


def charsmap(**rule):
    """The map of a normalizer, as SentencePiece compiles it."""
    import sentencepiece

    model = io.BytesIO()
    letters = " ".join("abcdefghijklmnopqrstuvwxyz")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([letters] * 50), model_writer=model, vocab_size=40, minloglevel=2, hard_vocab_limit=False, **rule
    )
    normalizer = dict(fields(model.getvalue()))[3]
    return dict(fields(normalizer))[2]


def precompiled(**rule):
    map = base64.b64encode(charsmap(**rule)).decode()
    tok = Tokenizer(models.BPE())
    d = json.loads(tok.to_str())
    d["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": map}
    return Tokenizer.from_str(json.dumps(d)).normalizer


def rules_file():
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False) as f:
        f.write(RULES)
    return f.name


def train_unigram(tok, size, specials, unk="<unk>"):
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token=unk, show_progress=False)
    tok.train_from_iterator(training_text(), trainer)
    return tok


def t5(normalizer=None):
    """As T5: SentencePiece's Unigram, a map of characters, spaces as a character, EOS."""
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizer or precompiled(normalization_rule_tsv=rules_file())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always"),
    ])  # fmt: skip
    tok.decoder = decoders.Metaspace(prepend_scheme="always")
    train_unigram(tok, 420, ["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    tok.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tok.token_to_id("</s>"))]
    )
    return tok


def xlmr():
    """As XLM-R: Unigram with CLS and SEP; here with bytes for unknown characters, and normalizers one after the other."""
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ])  # fmt: skip
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()])
    train_unigram(tok, 700, ["<s>", "<pad>", "</s>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)])
    d = json.loads(tok.to_str())
    d["model"]["byte_fallback"] = True
    d["added_tokens"] = d["added_tokens"][:4]
    tok = Tokenizer.from_str(json.dumps(d))
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tok


def mistral():
    """As Mistral's newer files: SentencePiece's BPE behind Metaspace, which leaves a text whole."""
    tok = llama2()
    tok.normalizer = None
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tok.add_special_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False)])
    return tok


def words():
    """Classes of characters as words, a byte alphabet as normalizer."""
    tok = Tokenizer(models.BPE(unk_token="?"))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.CharDelimiterSplit("x"),
        pre_tokenizers.Metaspace(prepend_scheme="never"),
    ])  # fmt: skip
    train(tok, 300, ["?"], list("abcdefghijklmnopqrstuvwxyz"))
    tok.decoder = decoders.Metaspace(prepend_scheme="never")
    tok.post_processor = processors.BertProcessing(("?", tok.token_to_id("?")), ("?", tok.token_to_id("?")))
    return tok


def bytes_first():
    """The byte alphabet as a normalizer, as in newer byte-level files."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    tok.pre_tokenizer = pre_tokenizers.Punctuation("isolated")
    tok.decoder = decoders.ByteLevel()
    return train(tok, 520, CHATML, pre_tokenizers.ByteLevel.alphabet())


def make_spm(count):
    """A vocabulary of SentencePiece's BPE, as a GGUF file has it, and what SentencePiece itself makes of texts."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=training_text(), model_writer=model, model_type="bpe", vocab_size=500, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        hard_vocab_limit=False, minloglevel=2, character_coverage=0.99,
    )  # fmt: skip
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.get_piece_size())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
    # SentencePiece takes no token from a text with NUL, and replaces U+2581 in it.
    texts = [s for s in strings(count, ["<s>", "</s>"], 17) if "\0" not in s and "\u2581" not in s and "<" not in s]
    with open(f"{TESTDATA}/spm.json", "w", encoding="utf-8") as f:
        json.dump({
            "tokens": [sp.id_to_piece(i) for i in ids], "scores": [sp.get_score(i) for i in ids], "types": kinds,
            "unk": sp.unk_id(), "bos": sp.bos_id(), "eos": sp.eos_id(),
            "cases": [{"text": s, "ids": sp.encode(s), "decoded": sp.decode(sp.encode(s))} for s in texts],
        }, f, ensure_ascii=True, separators=(",", ":"))  # fmt: skip
        f.write("\n")


TINY = {
    "smollm": smollm, "gpt2": gpt2, "qwen2": qwen2, "llama3": llama3,
    "llama2": llama2, "unknown": unknown, "falcon": falcon, "clip": clip,
    "t5": t5, "xlmr": xlmr, "mistral": mistral, "words": words, "bytes_first": bytes_first,
}  # fmt: skip


def make_tiny(count, only):
    if not only:
        shutil.rmtree(TESTDATA + "/tiny", ignore_errors=True)
    os.makedirs(TESTDATA + "/tiny", exist_ok=True)
    for seed, (name, make) in enumerate(TINY.items()):
        if only and name not in only:
            continue
        tok = make()
        # One member a line would be pretty, but long.
        with open(f"{TESTDATA}/tiny/{name}.json", "w", encoding="utf-8") as f:
            json.dump(json.loads(tok.to_str()), f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        write_goldens(f"{TESTDATA}/tiny/{name}.jsonl", goldens(tok, count, seed))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--compare", metavar="DIR", help="write goldens of the given files, and copies of them, to DIR")
    p.add_argument("--count", type=int, help="strings for each tokenizer")
    p.add_argument("--nmt-nfkc", metavar="FILE.json", help="write a Unigram tokenizer with SentencePiece's own map of characters")
    p.add_argument("files", nargs="*", metavar="FILE.json", help="files to compare, or names of tiny tokenizers to make")
    args = p.parse_args()
    print("tokenizers", tokenizers.__version__, file=sys.stderr)
    if args.nmt_nfkc:
        t5(precompiled(normalization_rule_name="nmt_nfkc")).save(args.nmt_nfkc)
        return
    if not args.compare:
        make_tiny(args.count or 200, args.files)
        if not args.files or "spm" in args.files:
            make_spm(args.count or 200)
        return
    os.makedirs(args.compare, exist_ok=True)
    for path in args.files:
        name = os.path.basename(path).removesuffix(".json")
        shutil.copy(path, f"{args.compare}/{name}.json")
        write_goldens(f"{args.compare}/{name}.jsonl", goldens(Tokenizer.from_file(path), args.count or 5000, 7))


if __name__ == "__main__":
    main()
