"""Attention heads set by hand in a fresh model: without them copying made-up names does not emerge within 10 M tokens.

Previous-token heads attend a fixed number of tokens back through their q and k biases under RoPE alone; one induction head finds
the token after an earlier copy of the present one (Olsson et al. 2022). All weights stay trainable, the architecture is unchanged.
Planted into a trained model they stay inert, so this runs once, before training. Knows only the language model's modules.
"""

from __future__ import annotations

from typing import Any

import torch

PLAN = ((0, 0, 1), (0, 1, 2), (1, 0, 1))  # (layer, head, tokens back)


@torch.no_grad()
def plant(model: Any, seed: int = 1) -> None:
    """Sets the heads of PLAN and an induction head at (2, 0), and scales the embeddings as both need."""
    text = model.model.language_model
    text.embed_tokens.weight.mul_(3)
    generator = torch.Generator().manual_seed(seed)
    for layer, head, back in PLAN:
        _previous_token(text, layer, head, back, generator)
    _induction(text, 2, 0, generator)


def _previous_token(text: Any, layer: int, head: int, back: int, generator: torch.Generator, strength: float = 18.0) -> None:
    """Biases whose rotary product peaks `back` tokens away; fast pairs place the peak, slower ones keep it single."""
    config = text.config
    size = config.hidden_size // config.num_attention_heads
    pair = torch.arange(size // 2)
    theta = config.rope_parameters["rope_theta"] ** (-pair * 2.0 / size)
    amplitude = (strength * ((pair < 4) * 2.0 + ((pair >= 4) & (pair < 8)) * 1.0 + ((pair >= 8) & (pair < 14)) * 0.5)).sqrt()
    a, rows = text.layers[layer].self_attn, slice(head * size, (head + 1) * size)
    a.q_proj.weight[rows], a.k_proj.weight[rows] = 0, 0
    a.q_proj.bias[rows] = torch.cat([amplitude, torch.zeros_like(amplitude)])
    a.k_proj.bias[rows] = torch.cat([amplitude * torch.cos(theta * back), amplitude * torch.sin(theta * back)])
    a.v_proj.weight[rows] = torch.randn(a.v_proj.weight[rows].shape, generator=generator) * 0.06
    a.v_proj.bias[rows] = 0
    scale = text.embed_tokens.weight.std() / 8
    a.o_proj.weight[:, rows] = torch.randn(a.o_proj.weight[:, rows].shape, generator=generator) * scale


def _induction(text: Any, layer: int, head: int, generator: torch.Generator, scale: float = 3.0) -> None:
    """`layer`.`head` matches its token with the token that head (0, 0) found one back, and copies what it attends to.

    Content sits in the slow rotary pairs (from the second half on), where distance does not matter.
    """
    config = text.config
    hidden = config.hidden_size
    size = hidden // config.num_attention_heads
    half = size // 2
    slow = torch.cat([torch.arange(size // 4, half), torch.arange(size // 4, half) + half])
    basis, _ = torch.linalg.qr(torch.randn(hidden, hidden, generator=generator))
    written = torch.linalg.qr(torch.randn(hidden, size, generator=generator))[0][:, :half]
    key, value = basis[:, :half].T, basis[:, half : half + size].T
    unit = text.embed_tokens.weight.std() * 4  # the norm made x unit-sized; bring it back to the residual's scale
    previous = text.layers[0].self_attn  # writes key · x[j-1] into the directions `written`
    previous.v_proj.weight[:half], previous.v_proj.weight[half:size] = key, 0
    previous.o_proj.weight[:, :size] = 0
    previous.o_proj.weight[:, :half] = written * unit
    a, rows = text.layers[layer].self_attn, slice(head * size, (head + 1) * size)
    for projection, matrix in ((a.q_proj, key), (a.k_proj, written.T)):
        projection.weight[rows], projection.bias[rows] = 0, 0
        projection.weight[torch.arange(hidden)[rows][slow]] = matrix * scale
    a.v_proj.weight[rows], a.v_proj.bias[rows] = value, 0
    a.o_proj.weight[:, rows] = value.T * unit
