#!/usr/bin/env python3
"""Dequantizes a GGUF of the llama family into a Hugging Face folder in float32, so that transformers can be the
reference for reading GGUF.

    gguf_to_hf.py MODEL.gguf OUT_DIR

Independent of the Go reader on purpose. Tensor types F32, F16, BF16, Q8_0, Q4_0, Q4_1; byte-level BPE vocabularies of the
pre-tokenizers named in PRE_TOKENIZERS. Rows of q and k, which GGUF interleaves for its rope, go back to the hub's
order. Needs numpy, safetensors, tokenizers.
"""

import json
import pathlib
import struct
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
CONTROL = 3  # token_type of special tokens
BLOCK = 32  # weights per block of the quantized types below

TENSOR_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def pre_tokenizer(name):
    digits_apart = {"smollm": True, "gpt-2": False}
    if name not in digits_apart:
        sys.exit(f"gguf_to_hf: pre-tokenizer {name!r} is not supported")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if not digits_apart[name]:
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.scalar("Q")
        self.at += length
        return bytes(self.data[self.at - length:self.at]).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.scalar("I"), self.scalar("Q")
            return [self.value(kind) for _ in range(count)]
        return self.scalar(SCALARS[kind])


def read(path):
    """Metadata, and per tensor name its (shape, type, raw bytes from its beginning); shape is slowest first."""
    data = memoryview(np.memmap(path, dtype=np.uint8, mode="r"))
    r = Reader(data)
    if bytes(data[:4]) != b"GGUF":
        sys.exit(f"gguf_to_hf: {path} is not a GGUF file")
    r.at = 4
    version, tensors, pairs = r.scalar("I"), r.scalar("Q"), r.scalar("Q")
    if version not in (2, 3):
        sys.exit(f"gguf_to_hf: GGUF version {version} is not supported")
    meta = {}
    for _ in range(pairs):
        key = r.string()
        meta[key] = r.value(r.scalar("I"))
    infos = []
    for _ in range(tensors):
        name = r.string()
        shape = [r.scalar("Q") for _ in range(r.scalar("I"))][::-1]
        infos.append((name, shape, r.scalar("I"), r.scalar("Q")))
    alignment = meta.get("general.alignment", 32)
    begin = (r.at + alignment - 1) // alignment * alignment
    return meta, {name: (shape, kind, data[begin + offset:]) for name, shape, kind, offset in infos}


def dequantize(shape, kind, raw):
    """The tensor in float32."""
    count = int(np.prod(shape))

    def blocks(size):
        return np.frombuffer(raw, np.uint8, count // BLOCK * size).reshape(-1, size)

    def half(b, column):
        return b[:, column:column + 2].copy().view("<f2").astype(np.float32)

    def nibbles(b):  # low nibbles are the first half of a block
        return np.concatenate([b & 15, b >> 4], axis=1).astype(np.float32)

    if kind == 0:
        out = np.frombuffer(raw, "<f4", count)
    elif kind == 1:
        out = np.frombuffer(raw, "<f2", count).astype(np.float32)
    elif kind == 30:
        out = (np.frombuffer(raw, "<u2", count).astype(np.uint32) << 16).view(np.float32)
    elif kind == 2:
        b = blocks(18)
        out = half(b, 0) * (nibbles(b[:, 2:]) - 8)
    elif kind == 3:
        b = blocks(20)
        out = half(b, 0) * nibbles(b[:, 4:]) + half(b, 2)
    elif kind == 8:
        b = blocks(34)
        out = half(b, 0) * b[:, 2:].copy().view(np.int8).astype(np.float32)
    else:
        sys.exit(f"gguf_to_hf: tensor type {kind} is not supported")
    return np.ascontiguousarray(out.reshape(shape), dtype=np.float32)


def unpermute(w, heads):
    """Rows (pair, half) of every head back to (half, pair)."""
    rows, columns = w.shape
    return np.ascontiguousarray(
        w.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns))


def hub_name(name):
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{TENSOR_NAMES[parts[2]]}.{parts[3]}"
    return f"{TENSOR_NAMES[parts[0]]}.{parts[1]}"


def hub_config(meta, tensors):
    def get(key):
        return meta["llama." + key]

    heads = get("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]), "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads, "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": meta.get("llama.attention.key_length", get("embedding_length") // heads),
        "max_position_embeddings": get("context_length"), "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.get("llama.rope.freq_base", 10000.0), "rope_scaling": None,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"], "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
    }


def tokenizer(meta):
    if meta["tokenizer.ggml.model"] != "gpt2":
        sys.exit(f"gguf_to_hf: vocabulary {meta['tokenizer.ggml.model']!r} is not supported")
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    out = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    out.pre_tokenizer = pre_tokenizer(meta["tokenizer.ggml.pre"])
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == CONTROL])
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    meta, tensors = read(sys.argv[1])
    folder = pathlib.Path(sys.argv[2])
    if meta["general.architecture"] != "llama" or "rope_freqs.weight" in tensors:
        sys.exit("gguf_to_hf: only the llama family without scaled rope is supported")
    config = hub_config(meta, tensors)
    state = {}
    for name, (shape, kind, raw) in tensors.items():
        weight = dequantize(shape, kind, raw)
        if ".attn_q." in name:
            weight = unpermute(weight, config["num_attention_heads"])
        if ".attn_k." in name:
            weight = unpermute(weight, config["num_key_value_heads"])
        state[hub_name(name)] = weight
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer(meta).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": meta.get("tokenizer.chat_template"),
        "eos_token": meta["tokenizer.ggml.tokens"][config["eos_token_id"]], "clean_up_tokenization_spaces": False,
    }, indent=2) + "\n")


if __name__ == "__main__":
    main()
