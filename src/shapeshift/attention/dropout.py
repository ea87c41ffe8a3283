"""Dropout that does not take a fifth of a training step on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability `p` and scale the rest by 1 / (1 − p) while `training`.

    As `torch.nn.functional.dropout`, which is used on every other device. PyTorch's CPU generator
    makes one random number at a time, 7 ns for each element; here each 64-bit number decides four
    elements, so p is rounded to a multiple of 2^-16 (and the scale with it: the mean is exact).

    Args:
        x: any shape.
        p: in [0, 1).
        training: if false, or p is zero, `x` itself is returned.
    """
    if not training or not p:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def draw(count: int, p: float) -> tuple[Tensor | None, int, float]:
    """Return uniform int16 numbers for `count` elements, the number from which an element is kept,
    and the scale of what is kept; without dropout (p = 0) there are no numbers."""
    if not p:
        return None, 0, 1.0
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    num_dropped = min(round(p * _LEVELS), _LEVELS - 1)
    scale = _LEVELS / (_LEVELS - num_dropped)
    return words.view(torch.int16)[:count], num_dropped - _LEVELS // 2, scale


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        draws, threshold, ctx.scale = draw(x.numel(), p)
        assert draws is not None
        ctx.in_bits = kernels.serves(x)
        if ctx.in_bits:
            out, kept = kernels.dropout(x, draws, threshold, ctx.scale)
        else:
            # As 0 and 1: products with a bool mask take four times as long.
            kept = (draws >= threshold).view(torch.int8).view(x.shape)
            out = (x * kept).mul_(ctx.scale)
        ctx.save_for_backward(kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        if ctx.in_bits:
            return kernels.dropout_backward(grad, kept, ctx.scale), None
        return (grad * kept).mul_(ctx.scale), None
