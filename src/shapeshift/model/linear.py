"""Linear layers that train faster than PyTorch's in bf16 on a CPU."""

from __future__ import annotations

import time
import timeit
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import kernels


class Linear(nn.Linear):
    """x W^T + b, by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b, `(…, N)`, for `x (…, K)`, `weight (N, K)` and `bias (N,)`.

    Where gradients are wanted under autocast to bf16 on a CPU, the product adds the bias, which
    `F.linear` copies into the result first, and a kernel computes the gradients of W and b in one
    pass, in float32. A processor that multiplies float32 faster does so with the rounded numbers.
    """
    trains = torch.is_grad_enabled() and weight.requires_grad and kernels.serves(x)
    in_bf16 = torch.get_autocast_dtype("cpu") == torch.bfloat16
    if not trains or not in_bf16 or not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    rows = x.flatten(0, -2).bfloat16()
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out if x.ndim == 2 else out.view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        weight, bias = weight.bfloat16(), bias.bfloat16()
        if not multiplies_bf16_faster():
            return torch.addmm(bias.float(), x.float(), weight.float().t()).bfloat16()
        x = x.contiguous()  # it reads other strides wrongly
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        weight = weight.bfloat16()
        if not multiplies_bf16_faster():
            x, weight, grad = (y.float() for y in (x, weight, grad))
        elif (
            not torch.is_grad_enabled()
            and not (x.shape[1] | grad.shape[1]) % kernels.EDGE
            and kernels.serves(grad)
        ):
            return grad @ weight, *kernels.weight_gradient(grad, x)
        return grad @ weight, grad.t() @ x, grad.sum(0)


def has_bf16_products() -> bool:
    """Return whether oneDNN multiplies bf16 on this CPU (on x86, from AVX-512 on). Otherwise
    PyTorch does, number by number: 9 to 77 times slower than float32 (docs/benchmarks.md)."""
    is_available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(is_available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def multiplies_bf16_faster() -> bool:
    """Return whether a product in bf16 takes at most 0.8 of the time of one in float32.

    Measured, because the processor's flags do not say it: with AVX-512 bf16, AMD's take half of
    the time and Intel's twice as long; with AMX it is a seventh or less.
    """

    def shortest_s(dtype: torch.dtype) -> float:
        a, b = torch.ones(256, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        timer = time.perf_counter
        return min(timeit.repeat(lambda: F.linear(a, b), number=1, repeat=10, timer=timer))

    if not has_bf16_products():
        return False
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        return shortest_s(torch.bfloat16) < 0.8 * shortest_s(torch.float32)
