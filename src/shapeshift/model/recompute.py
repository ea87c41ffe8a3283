"""What the backward pass on a CPU computes again in place of keeping it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from shapeshift import kernels


def recomputes(x: Tensor) -> bool:
    """Return whether memory counts more than the time of computing `x` again: on a CPU, in
    training."""
    return x.device.type == "cpu" and x.requires_grad and not kernels.is_traced()


@contextmanager
def recomputed(x: Tensor, again: Callable[[], Tensor]) -> Iterator[None]:
    """Within the context, functions of `x` keep no copy of it for their gradients; `again` returns
    it then, to the same bits."""
    # Neither function may keep `x`, for both are kept with the graph.
    numel, dtype, address = x.numel(), x.dtype, x.data_ptr()

    def pack(saved: Tensor) -> Tensor | torch.Size:
        is_x = saved.data_ptr() == address and saved.numel() == numel and saved.dtype == dtype
        return saved.shape if is_x else saved

    def unpack(packed: Tensor | torch.Size) -> Tensor:
        return packed if isinstance(packed, Tensor) else again().view(packed)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
