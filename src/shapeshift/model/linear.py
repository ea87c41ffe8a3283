"""Linear layers that keep less memory than PyTorch's in bf16 on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.kernels.processor import multiplies_bf16_faster
from shapeshift.positions.base import is_as_built


def apply_linear(module: nn.Module, x: Tensor) -> Tensor:
    """Return module(x), computed by `linear` if the module is an unchanged torch.nn.Linear.

    The testbed's layers are torch.nn.Linear itself, because tools such as
    `torch.ao.quantization.quantize_dynamic` look for exactly this type.
    """
    if can_fuse(module):
        return linear(x, module.weight, module.bias)  # type: ignore[arg-type]
    out: Tensor = module(x)
    return out


def can_fuse(*modules: nn.Module) -> bool:
    """Return whether modules can be computed from their weights alone, see `is_as_built`. Under a
    compiler or a transform of torch.func, the answer is no."""
    return not kernels.is_traced() and is_as_built(*modules)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b, `(…, N)`, for `x (…, K)`, `weight (N, K)` and `bias (N,)`. Under autocast
    to bf16 on a CPU, `F.linear` keeps a rounded copy of each W for the backward pass, which is 13 %
    of the memory of a training step of base. This function rounds W again instead. A processor that
    multiplies float32 faster than bf16 multiplies the rounded numbers in float32."""
    in_bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    trains = torch.is_grad_enabled() and weight.requires_grad and x.is_cpu
    is_plain = all(type(each) in (Tensor, nn.Parameter) for each in (weight, bias))
    is_plain = is_plain and x.dtype in (torch.float32, torch.bfloat16) and kernels.is_plain(x)
    if not trains or not in_bf16 or not is_plain:
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
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        weight = weight.bfloat16()
        if not multiplies_bf16_faster():
            x, weight, grad = (y.float() for y in (x, weight, grad))
        return grad @ weight, grad.t() @ x, grad.sum(0)
