"""Kernels in C, for a CPU, and in Triton, for a GPU; what each computes and wins: README.md.

This module says when they serve. `attention`, `decoding` and `training` call the C libraries, `gpu`
has the Triton kernels.

The libraries are built with the package (setup.py), one for each instruction set and dtype. Where
there are none, or for other dtypes and devices, `serves` is false and callers compute the same in
steps of PyTorch. `SHAPESHIFT_KERNELS` names the instruction set to use, or `none`; by default it is
the fastest that the processor has.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import library
from .library import DTYPES, describe

__all__ = ["describe"]

MAX_KEYS = 1 << 16
"""A thread keeps a row of scores on its stack."""

LANES = 16
"""Numbers in a vector of the kernels are this many, or a divisor of it."""

HAS_TRITON = importlib.util.find_spec("triton") is not None


def serves(x: Tensor) -> bool:
    """Return whether the kernels in C accept `x (…, Q, K)`."""
    if x.device.type != "cpu" or x.dtype not in DTYPES or not x.ndim or x.shape[-1] > MAX_KEYS:
        return False
    return is_plain(x) and is_available(x.dtype)


def serves_on_gpu(x: Tensor) -> bool:
    """Return whether the kernels of `gpu` accept `x`, in training or not."""
    kinds = torch.float32, torch.bfloat16, torch.float16
    return x.dtype in kinds and compiles_for(x.device.type) and is_plain(x)


def compiles_for(device: str) -> bool:
    """Return whether Triton compiles kernels for a device: NVIDIA's from Ampere on."""
    if device != "cuda" or not HAS_TRITON or torch.version.hip:
        return False
    # `torch.compile`, which cannot ask, needs such a GPU itself.
    return torch.compiler.is_compiling() or torch.cuda.get_device_capability() >= (8, 0)


def is_plain(x: Tensor) -> bool:
    """Return whether `x` is a tensor in memory, with gradients in reverse mode at most."""
    if is_traced() or type(x) is not Tensor or not x.numel():
        return False
    if forward_ad._current_level >= 0:  # derivatives in forward mode
        return False
    return _is_in_memory(x)


def _is_in_memory(x: Tensor) -> bool:
    """Return whether `x` is an ordinary tensor, not a batch of gradients."""
    try:
        x.data_ptr()
    except RuntimeError:
        return False
    return True


def is_traced() -> bool:
    """Return whether PyTorch has to see each operation: in compiled code, under `torch.jit.trace`,
    and in transforms of torch.func such as `vmap`."""
    return is_captured() or torch._C._are_functorch_transforms_active()


def is_captured() -> bool:
    """Return whether this is compiled or exported, or recorded by `torch.jit.trace`, `make_fx` or
    `FakeTensorMode`."""
    is_tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]
    if torch.compiler.is_compiling() or is_tracing():
        return True
    modes = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FAKE
    return _is_watched() and any(torch._C._get_dispatch_mode(x) is not None for x in modes)


def _is_watched() -> bool:
    """Return whether a mode such as `FlopCounterMode` sees each operation."""
    return torch._C._len_torch_dispatch_stack() > 0


def is_available(dtype: torch.dtype) -> bool:
    """Return whether there are kernels for a dtype, and no mode that would not see them."""
    return dtype in DTYPES and library.library(dtype) is not None and not _is_watched()


def needs_steps(grad: Tensor) -> bool:
    """Return whether a backward pass must use plain PyTorch: its results will be differentiated
    (`create_graph`), `grad` is a batch of gradients (`is_grads_batched`), or a mode sees it."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.is_grad_enabled()
    return _is_watched() or (type(grad) is Tensor and not _is_in_memory(grad))


def differentiate(
    run: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return differentiable gradients of `inputs`, given the gradients of `run(*inputs)`, which
    computes one or several tensors in plain PyTorch."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast(grads[0].device.type, enabled=False):
        # Views, because one tensor may be several inputs.
        own = [x if x is None or not x.requires_grad else x.view_as(x) for x in inputs]
        wanted = [x for x in own if x is not None and x.requires_grad]
        options: Any = {"create_graph": create_graph, "allow_unused": True}
        found = iter(torch.autograd.grad(run(*own), wanted, grads, **options))
    return [next(found) if x is not None and x.requires_grad else None for x in own]
