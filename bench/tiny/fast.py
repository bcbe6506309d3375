"""Training-only speed-ups on CPU: the mathematics of the stock modules, written so that one compiled graph serves every length.

Measured on one core: PyTorch's fused attention backward takes about 10× a plain bmm at these lengths, Conv3d's backward half of a
vision step, and eager element-wise work half of a language step. Tests hold these functions equal to the stock forward passes.
Both families share the language model; its weights are read from the stock modules, so what is trained is what is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, interpolate, linear, silu

from bench.tiny import patches

TokenLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
See = Callable[[Tensor], Tensor]


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding; cos and sin hold half the head's size (both halves turn by the same angles)."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """Softmax attention over (batch, n, heads, size) by plain bmm; `mask` (n, n) is added to the scores."""
    b, n, h, d = q.shape
    q, k, v = (x.transpose(1, 2).reshape(b * h, n, d) for x in (q, k, v))
    w = torch.bmm(q, k.transpose(1, 2)) * scale
    if mask is not None:
        w = w + mask
    return torch.bmm(torch.softmax(w, -1), v).view(b, h, n, d).transpose(1, 2).reshape(b, n, h * d)


def token_loss(model: Any, compiled: bool = True) -> TokenLoss:
    """f(embeddings (b, n, hidden), positions (3, b, n), ids (b, n)) → next-token cross-entropy (b, n - 1), float32."""
    text, head = model.model.language_model, model.lm_head.weight
    config = text.config
    heads, eps = config.num_attention_heads, config.rms_norm_eps
    size = config.hidden_size // heads
    rates = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2).float() / size)
    sections = config.rope_parameters.get("mrope_section", [size // 2])
    axis = torch.tensor([i % 3 for i, n in enumerate(sections) for _ in range(n)])

    def block(layer: Any, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        b, n = x.shape[:2]
        a, m = layer.self_attn, layer.mlp
        y = _norm(x, layer.input_layernorm.weight, eps)
        weight = torch.cat((a.q_proj.weight, a.k_proj.weight, a.v_proj.weight))
        qkv = linear(y, weight, torch.cat((a.q_proj.bias, a.k_proj.bias, a.v_proj.bias)))
        q, k, v = (t.view(b, n, heads, size) for t in qkv.chunk(3, -1))
        x = x + linear(_attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v, size**-0.5, mask), a.o_proj.weight)
        y = _norm(x, layer.post_attention_layernorm.weight, eps)
        gate, up = linear(y, torch.cat((m.gate_proj.weight, m.up_proj.weight))).chunk(2, -1)
        return x + linear(silu(gate) * up, m.down_proj.weight)

    def predict(x: Tensor, norm: Tensor, head: Tensor, ids: Tensor) -> Tensor:
        logits = linear(_norm(x, norm, eps)[:, :-1], head).float()
        return torch.logsumexp(logits, -1) - logits.gather(-1, ids[:, 1:, None])[..., 0]

    if compiled:  # one graph for a layer, whichever it is: compiling five unrolled layers takes minutes
        block, predict = torch.compile(block, dynamic=True), torch.compile(predict, dynamic=True)

    def loss(x: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
        with torch.no_grad():  # outside the graph: inductor would compute every cosine anew in each layer, forward and back
            angles = (positions[axis].permute(1, 2, 0).float() * rates)[:, :, None]
            mask = torch.full((ids.shape[1], ids.shape[1]), -1e4, dtype=x.dtype).triu(1)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in text.layers:
            x = block(layer, x, cos, sin, mask)
        return predict(x, text.norm.weight, head, ids)

    return loss


def see(model: Any, compiled: bool = True) -> See:
    """f(patches (frames · 60, 588)) → merged embeddings (frames · 15, hidden) of the Qwen2.5-VL tower, frames of 140×84.

    A picture is two equal time steps to the tower, so one of them and the sum of the kernel's halves do as well.
    """
    tower = model.model.visual
    config = tower.config
    heads = config.num_heads
    size = config.hidden_size // heads
    rates = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, size // 2, 2).float() / (size // 2))
    angles = torch.cat([p[:, None].float() * rates for p in _patch_places()], -1)[None, :, None]
    cos, sin = angles.cos(), angles.sin()
    count = patches.GRID[1] * patches.GRID[2]

    def block(layer: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, n = x.shape[:2]
        y = _norm(x, layer.norm1.weight, 1e-6)
        q, k, v = (t.view(b, n, heads, size) for t in linear(y, layer.attn.qkv.weight, layer.attn.qkv.bias).chunk(3, -1))
        y = _attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v, size**-0.5, None)
        x = x + linear(y, layer.attn.proj.weight, layer.attn.proj.bias)
        y, m = _norm(x, layer.norm2.weight, 1e-6), layer.mlp
        y = silu(linear(y, m.gate_proj.weight, m.gate_proj.bias)) * linear(y, m.up_proj.weight, m.up_proj.bias)
        return x + linear(y, m.down_proj.weight, m.down_proj.bias)

    if compiled:
        block = torch.compile(block, dynamic=True)

    def forward(pixels: Tensor) -> Tensor:
        kernel = tower.patch_embed.proj.weight.sum(2).flatten(1)  # a convolution whose stride is its kernel is a linear layer
        x = linear(pixels.to(kernel.dtype), kernel).view(-1, count, config.hidden_size)
        for layer in tower.blocks:
            x = block(layer, x, cos.to(x.dtype), sin.to(x.dtype))
        first, _, last = tower.merger.mlp
        x = _norm(x, tower.merger.ln_q.weight, 1e-6).view(-1, patches.MERGE**2 * config.hidden_size)
        return linear(gelu(linear(x, first.weight, first.bias)), last.weight, last.bias)

    return forward


def see_of(model: Any, compiled: bool = True) -> See:
    """The fastest form that the model's family has."""
    return see(model, compiled) if hasattr(model.model, "visual") else stock_see(model)


def pixels_of(arranged: Tensor, counts: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """uint8 (frames · 60, 588) → bfloat16, normalised; with `generator`, each clip's brightness, contrast and tint are moved a little.

    `counts` are frames per clip.
    """
    mean, std = torch.from_numpy(patches.MEAN)[None, :, None], torch.from_numpy(patches.STD)[None, :, None]
    gain, shift = (1 / (255 * std)).repeat(len(counts), 1, 1), (-mean / std).repeat(len(counts), 1, 1)
    if generator is not None:
        contrast = 1 + 0.12 * torch.randn((len(counts), 1, 1), generator=generator)
        tint = 0.12 * torch.randn((len(counts), 1, 1), generator=generator) + 0.05 * torch.randn((len(counts), 3, 1), generator=generator)
        gain, shift = gain * contrast, shift * contrast + tint
    rows = torch.tensor(counts) * (patches.GRID[1] * patches.GRID[2])
    x = arranged.view(len(arranged), 3, -1).to(torch.bfloat16)  # exact: 8 bits fit
    return torch.addcmul(shift.bfloat16().repeat_interleave(rows, 0), x, gain.bfloat16().repeat_interleave(rows, 0)).view(len(arranged), -1)


def _patch_places() -> tuple[Tensor, Tensor]:
    """Row and column of each of a frame's 60 patches, in the processor's order (2×2 blocks)."""
    rows, columns = torch.meshgrid(torch.arange(patches.GRID[1]), torch.arange(patches.GRID[2]), indexing="ij")

    def order(x: Tensor) -> Tensor:
        m = patches.MERGE
        return x.view(patches.ROWS, m, patches.COLUMNS, m).transpose(1, 2).reshape(-1)

    return order(rows), order(columns)


def stock_see(model: Any) -> See:
    """The same for a family whose tower has no fast form: patches back to pictures, squeezed to squares, then the tower as it is."""

    def forward(pixels: Tensor) -> Tensor:
        p, m = patches.PATCH, patches.MERGE
        x = pixels.view(-1, patches.ROWS, patches.COLUMNS, m, m, 3, p, p).permute(0, 5, 1, 3, 6, 2, 4, 7)
        pictures = x.reshape(-1, 3, patches.HEIGHT, patches.WIDTH)
        squares = interpolate(pictures.float(), (patches.SIDE, patches.SIDE), mode="bicubic", antialias=True).to(pixels.dtype)
        seen: Tensor = model.model.get_image_features(pixel_values=squares).pooler_output
        return seen.reshape(-1, seen.shape[-1])

    return forward
