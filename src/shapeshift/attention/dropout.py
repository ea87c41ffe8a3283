"""Dropout with a fast generator of random numbers on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.kernels import training

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool, relu: bool = False) -> Tensor:
    """Zero each element with probability `p` and scale the rest by 1 / (1 − p) while `training`.

    On a CPU, PyTorch draws a number for each element, which takes 7 ns. Here PyTorch draws one
    seed, and each 64-bit word computed from it decides four elements. p is rounded to a multiple of
    2^-16, and the scale fits the rounded p, so that the mean is exact. Other devices, compiled code
    and `torch.func` use `torch.nn.functional.dropout`.

    Args:
        x: any shape.
        p: in [0, 1).
        training: if false, or p is zero, `x` itself is returned.
        relu: whether ReLU comes first; `x` may be overwritten then.
    """
    if training and p and x.device.type == "cpu" and not kernels.is_traced():
        dropped: Tensor = _Dropout.apply(x, p, relu, None)  # type: ignore[no-untyped-call]
        return dropped
    x = F.relu_(x) if relu else x
    return F.dropout(x, p) if training and p else x


def add_dropped(x: Tensor, branch: Tensor, p: float, training: bool) -> Tensor:
    """Return x + `dropout`(branch), in one pass on a CPU."""
    fits = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape == branch.shape
    if training and p and fits and kernels.serves(x) and kernels.serves(branch):
        total: Tensor = _Dropout.apply(branch, p, False, x)  # type: ignore[no-untyped-call]
        return total
    return x + dropout(branch, p, training)


def draw_seed(p: float) -> tuple[int, int, float]:
    """Return a seed for `numbers`, a threshold below which elements are dropped, and the scale of
    the kept elements. For p = 0, nothing is drawn or dropped."""
    if not p:
        return 0, -_LEVELS // 2, 1.0
    if not 0 < p < 1:
        raise ShapeshiftError(f"dropout must be at least 0 and below 1, got {p}")
    num_dropped = min(round(p * _LEVELS), _LEVELS - 1)
    seed = torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    return int(seed), num_dropped - _LEVELS // 2, _LEVELS / (_LEVELS - num_dropped)


def numbers(count: int, seed: int) -> Tensor:
    """Return `count` uniform int16 numbers of a seed, the same ones as in the kernels."""
    words = (
        torch.arange((count + 3) // 4, device="cpu").mul_(_signed(0x9E3779B97F4A7C15)).add_(seed)
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        high = words >> shift & (1 << 64 - shift) - 1
        words = words.bitwise_xor_(high).mul_(_signed(factor))
    return words.view(torch.int16)[:count]


def _signed(word: int) -> int:
    return word - (word >> 63 << 64)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, relu: bool, added: Tensor | None) -> Tensor:
        seed, threshold, ctx.scale = draw_seed(p)
        ctx.in_bits, ctx.dtype = kernels.serves(x), x.dtype
        if ctx.in_bits:
            out, kept = training.dropout(x, seed, threshold, ctx.scale, relu, added)
        else:
            # As 0 and 1: products with a bool mask take four times as long.
            kept = (numbers(x.numel(), seed) >= threshold).view(torch.int8).view(x.shape)
            kept = kept * (x > 0) if relu else kept
            out = (x * kept).mul_(ctx.scale)
        ctx.save_for_backward(kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        if ctx.in_bits:
            own = training.dropout_backward(grad, kept, ctx.scale, ctx.dtype)
        else:
            own = (grad * kept).mul_(ctx.scale)
        return own, None, None, grad if ctx.needs_input_grad[3] else None
