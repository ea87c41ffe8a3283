"""Linear layers that train faster than PyTorch's in bf16 on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.kernels import processor
from shapeshift.positions.base import has_hooks


def apply_linear(module: nn.Module, x: Tensor) -> Tensor:
    """Return module(x); by `linear` if the module is a torch.nn.Linear as it was built.

    The testbed's layers are torch.nn.Linear itself, which tools look for by its exact type, such as
    `torch.ao.quantization.quantize_dynamic`.
    """
    if is_as_built(module):
        return linear(x, module.weight, module.bias)  # type: ignore[arg-type]
    out: Tensor = module(x)
    return out


def is_as_built(*modules: nn.Module) -> bool:
    """Return whether modules are torch.nn.Linear, or ReLU, that nobody has changed: no hook sees
    what they return, none is a subclass (as with `torch.nn.utils.parametrize`), and none has a
    `forward` of its own. Under a compiler or a transform of torch.func the answer is no."""
    return not kernels.is_traced() and all(
        type(module) in (nn.Linear, nn.ReLU)
        and not has_hooks(module)
        and vars(module).keys().isdisjoint(("forward", "_compiled_call_impl"))
        for module in modules
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b, `(…, N)`, for `x (…, K)`, `weight (N, K)` and `bias (N,)`.

    Where gradients are wanted under autocast to bf16 on a CPU, the product adds the bias, which
    `F.linear` copies into the result first, and a kernel computes the gradients of W and b in one
    pass, in float32. A processor that multiplies float32 faster does so with the rounded numbers.
    """
    trains = torch.is_grad_enabled() and weight.requires_grad and kernels.serves(x)
    in_bf16 = torch.get_autocast_dtype("cpu") == torch.bfloat16
    is_plain = all(type(each) in (Tensor, nn.Parameter) for each in (weight, bias))
    if not trains or not in_bf16 or not is_plain or not torch.is_autocast_enabled("cpu"):
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


def multiplies_bf16_faster() -> bool:
    """Return whether products in bf16 are faster here than in float32: a fact about the processor
    and this build of PyTorch, the same in all processes."""
    return has_bf16_products() and processor.multiplies_bf16_faster()
