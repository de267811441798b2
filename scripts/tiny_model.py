"""A qwen3_moe in PyTorch that trains fast on a CPU.

The same mathematics and the same weights as Qwen3MoeForCausalLM of transformers (train_tiny.py check compares the
logits), arranged for a few cores: bf16 products, all experts of a layer are one parameter, tokens reach them
by gathers only (no scatter in either direction), every expert's batch is padded to a multiple of PAD_ROWS so that
few matrix shapes occur, and the loss never holds the logits of more than a chunk of rows.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F

PAD_ROWS = 128
LOSS_CHUNK_ROWS = 2048


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 4096
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 22
    top_k: int = 4
    expert_width: int = 128
    context: int = 1024
    rope_theta: float = 10000.0
    eps: float = 1e-6
    balance: float = 0.01  # weight of the load-balancing loss


class Experts(torch.autograd.Function):
    """out[t] = sum over k of gate[t, k] * down_e(silu(gate_e(x[t])) * up_e(x[t])), e = chosen[t, k].

    x [tokens, hidden], gate and chosen [tokens, top_k], gate_up [experts, 2 * width, hidden], down [experts, hidden,
    width]. Products run in the dtype of x; parameters and their gradients are float32."""

    @staticmethod
    def forward(ctx, x, gate, chosen, gate_up, down):
        token, slot, row_gate, bounds = dispatch(chosen, gate, gate_up.shape[0])
        w_in, w_out = gate_up.to(x.dtype), down.to(x.dtype)
        rows = x[token]
        pre = x.new_empty(len(token), gate_up.shape[1])
        for (a, b), w in zip(bounds, w_in.unbind()):
            if b > a:
                torch.mm(rows[a:b], w.t(), out=pre[a:b])
        g, u = pre.chunk(2, dim=-1)
        h = F.silu(g) * u
        y = x.new_empty(len(token), x.shape[1])
        for (a, b), w in zip(bounds, w_out.unbind()):
            if b > a:
                torch.mm(h[a:b], w.t(), out=y[a:b])
        out = torch.einsum("tkh,tk->th", y[slot], gate.to(x.dtype))
        ctx.save_for_backward(rows, pre, h, y, slot, token, row_gate, gate, w_in, w_out)
        ctx.bounds = bounds
        return out

    @staticmethod
    def backward(ctx, d_out):
        rows, pre, h, y, slot, token, row_gate, gate, w_in, w_out = ctx.saved_tensors
        d_gate = torch.einsum("tkh,th->tk", y[slot], d_out).to(gate.dtype)
        d_y = d_out[token] * row_gate[:, None].to(d_out.dtype)
        d_h = torch.empty_like(h)
        d_down = torch.zeros(w_out.shape, dtype=torch.float32)
        for e, (a, b) in enumerate(ctx.bounds):
            if b > a:
                torch.mm(d_y[a:b], w_out[e], out=d_h[a:b])
                d_down[e].copy_(d_y[a:b].t() @ h[a:b])
        g, u = pre.chunk(2, dim=-1)
        s = torch.sigmoid(g)
        d_pre = torch.cat([d_h * u * s * (1 + g * (1 - s)), d_h * g * s], dim=-1)
        d_rows = torch.empty_like(rows)
        d_gate_up = torch.zeros(w_in.shape, dtype=torch.float32)
        for e, (a, b) in enumerate(ctx.bounds):
            if b > a:
                torch.mm(d_pre[a:b], w_in[e], out=d_rows[a:b])
                d_gate_up[e].copy_(d_pre[a:b].t() @ rows[a:b])
        return d_rows[slot].sum(dim=1), d_gate, None, d_gate_up, d_down


def dispatch(chosen, gate, experts):
    """Orders (token, k) pairs by expert, each expert's rows padded to a multiple of PAD_ROWS.

    Returns token [rows] (0 in padding), slot [tokens, top_k] (the row of each pair), the gate of each row (0 in
    padding, which keeps padding out of every gradient) and the row range of each expert."""
    flat = chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=experts)
    padded = (counts + PAD_ROWS - 1) // PAD_ROWS * PAD_ROWS
    end = torch.cumsum(padded, 0)
    shift = (end - padded) - (torch.cumsum(counts, 0) - counts)
    row = torch.arange(len(flat)) + shift[flat[order]]
    total = int(end[-1])
    token = torch.zeros(total, dtype=torch.long)
    token[row] = order // chosen.shape[1]
    row_gate = torch.zeros(total)
    row_gate[row] = gate.detach().float().reshape(-1)[order]
    slot = torch.empty_like(flat)
    slot[order] = row
    begin = (end - padded).tolist()
    return token, slot.view_as(chosen), row_gate, list(zip(begin, end.tolist()))


class TiedLoss(torch.autograd.Function):
    """Sum of the cross entropy in nats of logits h @ embedding.T; gradients are made on the way forward."""

    @staticmethod
    def forward(ctx, h, embedding, targets):
        w = embedding.to(h.dtype)
        total, d_h, d_w = 0.0, torch.empty_like(h), torch.zeros_like(embedding)
        for a in range(0, len(h), LOSS_CHUNK_ROWS):
            part, target = h[a:a + LOSS_CHUNK_ROWS], targets[a:a + LOSS_CHUNK_ROWS, None]
            log_p = torch.log_softmax((part @ w.t()).float(), dim=-1)
            total += -log_p.gather(1, target).sum()
            d = log_p.exp_()
            d.scatter_add_(1, target, torch.full_like(target, -1, dtype=d.dtype))
            d = d.to(h.dtype)
            torch.mm(d, w, out=d_h[a:a + LOSS_CHUNK_ROWS])
            d_w += d.t() @ part
        ctx.save_for_backward(d_h, d_w)
        return total

    @staticmethod
    def backward(ctx, scale):
        d_h, d_w = ctx.saved_tensors
        return d_h * scale.to(d_h.dtype), d_w * scale, None


def rms_norm(x, weight, eps):
    f = x.float()
    return f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Model(torch.nn.Module):
    """Parameters live in one flat ParameterDict; hub_tensors gives them the hub's names."""

    def __init__(self, config, seed):
        super().__init__()
        self.config = c = config
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape, fan_in, scale=1.0):
            return torch.nn.Parameter(torch.randn(*shape, generator=generator) * (0.5 * scale / math.sqrt(fan_in)))

        def ones(n):
            return torch.nn.Parameter(torch.ones(n))

        into_residual = 1 / math.sqrt(2 * c.layers)
        self.embedding = normal(c.vocab, c.hidden, fan_in=c.hidden)
        self.final_norm = ones(c.hidden)
        self.blocks = torch.nn.ModuleList(torch.nn.ParameterDict({
            "attn_norm": ones(c.hidden),
            "q": normal(c.heads * c.head_dim, c.hidden, fan_in=c.hidden),
            "k": normal(c.kv_heads * c.head_dim, c.hidden, fan_in=c.hidden),
            "v": normal(c.kv_heads * c.head_dim, c.hidden, fan_in=c.hidden),
            "o": normal(c.hidden, c.heads * c.head_dim, fan_in=c.heads * c.head_dim, scale=into_residual),
            "q_norm": ones(c.head_dim),
            "k_norm": ones(c.head_dim),
            "moe_norm": ones(c.hidden),
            "router": normal(c.experts, c.hidden, fan_in=c.hidden),
            "gate_up": normal(c.experts, 2 * c.expert_width, c.hidden, fan_in=c.hidden),
            "down": normal(c.experts, c.hidden, c.expert_width, fan_in=c.expert_width, scale=into_residual),
        }) for _ in range(c.layers))

    def hidden(self, ids, dtype):
        """Final hidden states [tokens, hidden] in dtype for ids [batch, length], and the load-balancing loss."""
        c = self.config
        x = F.embedding(ids, self.embedding)
        position = torch.arange(ids.shape[1], dtype=torch.float32)
        inverse = c.rope_theta ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim)
        angle = position[:, None] * inverse
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        balance = x.new_zeros(())
        for p in self.blocks:
            x = x + self.attention(p, rms_norm(x, p["attn_norm"], c.eps).to(dtype), cos, sin)
            out, unevenness = self.moe(p, rms_norm(x, p["moe_norm"], c.eps))
            x = x + out
            balance = balance + unevenness
        return rms_norm(x, self.final_norm, c.eps).to(dtype).flatten(0, 1), balance / c.layers

    def attention(self, p, h, cos, sin):
        c = self.config
        q = F.linear(h, p["q"].to(h.dtype)).unflatten(-1, (c.heads, c.head_dim))
        k = F.linear(h, p["k"].to(h.dtype)).unflatten(-1, (c.kv_heads, c.head_dim))
        v = F.linear(h, p["v"].to(h.dtype)).unflatten(-1, (c.kv_heads, c.head_dim))
        q = rotate(rms_norm(q, p["q_norm"], c.eps), cos, sin)
        k = rotate(rms_norm(k, p["k_norm"], c.eps), cos, sin)
        # In float32: the fused kernel is 1.6 times slower in bf16 on CPUs without AMX.
        group = c.heads // c.kv_heads
        k, v = k.repeat_interleave(group, 2), v.float().repeat_interleave(group, 2)
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return F.linear(y.transpose(1, 2).flatten(-2).to(h.dtype), p["o"].to(h.dtype))

    def moe(self, p, h):
        """h [batch, length, hidden] float32: the router sees full precision, the experts the working one."""
        c = self.config
        flat = h.flatten(0, 1)
        probabilities = F.linear(flat, p["router"]).softmax(-1)
        gate, chosen = probabilities.topk(c.top_k, dim=-1)
        gate = gate / gate.sum(-1, keepdim=True)
        used = F.one_hot(chosen, c.experts).sum(1).float().mean(0) / c.top_k
        unevenness = c.experts * (used * probabilities.mean(0)).sum()
        out = Experts.apply(flat.to(self.dtype), gate, chosen, p["gate_up"], p["down"])
        return out.view_as(h), unevenness

    dtype = torch.float32  # of the matrix products; training sets bfloat16

    def loss(self, ids, targets):
        """(mean cross entropy in nats, load-balancing loss), differentiable."""
        h, unevenness = self.hidden(ids, self.dtype)
        return TiedLoss.apply(h, self.embedding, targets.flatten()) / targets.numel(), unevenness

    def logits(self, ids):
        h, _ = self.hidden(ids, self.dtype)
        return (h @ self.embedding.to(h.dtype).t()).view(*ids.shape, -1).float()


def hub_tensors(state, config):
    """The state dict under the names that the hub's qwen3_moe checkpoints use."""
    out = {"model.embed_tokens.weight": state["embedding"], "model.norm.weight": state["final_norm"]}
    names = {
        "attn_norm": "input_layernorm", "moe_norm": "post_attention_layernorm", "router": "mlp.gate",
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
    }
    for layer in range(config.layers):
        for ours, theirs in names.items():
            out[f"model.layers.{layer}.{theirs}.weight"] = state[f"blocks.{layer}.{ours}"]
        gate_up, down = state[f"blocks.{layer}.gate_up"], state[f"blocks.{layer}.down"]
        for e in range(config.experts):
            prefix = f"model.layers.{layer}.mlp.experts.{e}"
            out[f"{prefix}.gate_proj.weight"] = gate_up[e, :config.expert_width]
            out[f"{prefix}.up_proj.weight"] = gate_up[e, config.expert_width:]
            out[f"{prefix}.down_proj.weight"] = down[e]
    return out


def hub_config(config):
    """config.json of the model as the hub writes it for qwen3_moe."""
    c = config
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
        "vocab_size": c.vocab, "hidden_size": c.hidden, "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "attention_bias": False, "attention_dropout": 0.0,
        "num_experts": c.experts, "num_experts_per_tok": c.top_k, "norm_topk_prob": True,
        "moe_intermediate_size": c.expert_width, "intermediate_size": c.expert_width * c.top_k,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu",
        "output_router_logits": False, "router_aux_loss_coef": c.balance,
        "max_position_embeddings": c.context, "rope_theta": c.rope_theta, "rope_scaling": None,
        "rms_norm_eps": c.eps, "initializer_range": 0.02, "tie_word_embeddings": True,
        "sliding_window": None, "use_sliding_window": False, "use_cache": True,
        "bos_token_id": 0, "eos_token_id": 0,
    }
