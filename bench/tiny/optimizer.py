"""Muon on the matrices of both towers, AdamW on the rest (Jordan et al. 2024): a third of the steps that AdamW alone needs here.

Matrices of one shape are orthogonalised together, which on a CPU is faster than one by one. State goes in and out as tensors by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

_A, _B, _C = 3.4445, -4.7750, 2.0315  # the quintic that pushes singular values towards 1


def orthogonal(g: Tensor, steps: int = 5) -> Tensor:
    """About U·Vᵀ of every matrix in (n, rows, columns), rows ≤ columns; by Newton-Schulz in bfloat16."""
    x: Tensor = g.bfloat16()
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        a = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=_B, alpha=_C), x, beta=_A)
    return x.float()


class Optimizer:
    """Steps named float32 parameters. `lr` is AdamW's; Muon's is `ratio` times that."""

    def __init__(self, named: Iterable[tuple[str, Parameter]], lr: float, *, ratio: float = 4.0, decay: float = 0.02) -> None:
        self.lr, self.ratio, self.decay = lr, ratio, decay
        self.groups: dict[tuple[int, int], list[Parameter]] = {}
        rest: list[Parameter] = []
        for name, p in named:
            if p.ndim == 2 and ("layers." in name or "blocks." in name or "merger." in name or "projector." in name):
                self.groups.setdefault((min(p.shape), max(p.shape)), []).append(p)
            else:
                rest.append(p)
        self.momentum = {shape: torch.zeros(len(ps), *shape) for shape, ps in self.groups.items()}
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98))
        self.rest = [p for group in self.adam.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """One step with the learning rates times `scale`; gradients stay."""
        for group in self.adam.param_groups:
            group["lr"] = self.lr * scale
        self.adam.step()
        rate = self.lr * self.ratio * scale
        for shape, ps in self.groups.items():
            tall = [p.shape[0] > p.shape[1] for p in ps]
            g = torch.stack([p.grad.T if t else p.grad for p, t in zip(ps, tall, strict=True) if p.grad is not None])
            m = self.momentum[shape].lerp_(g, 0.05)
            update = orthogonal(g.lerp(m, 0.95))
            for p, u, t in zip(ps, update, tall, strict=True):
                stretch = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - rate * self.decay).add_(u.T if t else u, alpha=-rate * stretch)

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step needs, by name."""
        out = {f"muon.{a}x{b}": m for (a, b), m in self.momentum.items()}
        for i, p in enumerate(self.rest):
            out.update({f"adam.{i}.{key}": torch.as_tensor(value) for key, value in self.adam.state.get(p, {}).items()})
        return out

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Takes back what `state` gave."""
        for a, b in self.momentum:
            self.momentum[a, b].copy_(state[f"muon.{a}x{b}"])
        for i, p in enumerate(self.rest):
            own = {key: state[f"adam.{i}.{key}"].clone() for key in ("step", "exp_avg", "exp_avg_sq") if f"adam.{i}.{key}" in state}
            if own:
                self.adam.state[p] = own
