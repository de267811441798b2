"""The Muon optimiser (Keller Jordan, 2024) for the weight matrices of the embedded model.

Momentum whose update is replaced by its nearest orthogonal matrix, all singular directions alike. The step is scaled by
0.2 sqrt(max(rows, columns)), which gives it the size of an AdamW step, so that both share a learning rate and a weight
decay (Liu et al., "Muon is scalable for LLM training", 2025, section 2.2).
"""

import torch

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic that drives singular values towards one


def orthogonal(g):
    """Roughly the orthogonal factor of the polar decomposition of each matrix in g [n, rows, columns]."""
    a, b, c = COEFFICIENTS
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Parameters are matrices, or stacks of them [n, rows, columns]; a group's `split` cuts rows into that many parts
    which are orthogonalised apart (gate and up of an expert, which share a parameter)."""

    def __init__(self, groups, lr, weight_decay):
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "split": 1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"].lerp_(p.grad, 1 - MOMENTUM)
                update = p.grad.lerp(momentum, MOMENTUM)
                rows, columns = p.shape[-2] // group["split"], p.shape[-1]
                update = orthogonal(update.view(-1, rows, columns)).view_as(p)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * max(rows, columns) ** 0.5)
