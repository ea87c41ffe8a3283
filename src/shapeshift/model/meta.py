"""Modules on the meta device, which have shapes and settings but no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class _NothingComputed(TorchFunctionMode):
    """Skips the drawing of normal numbers and logarithms, and returns the tensor unchanged."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (nn.init.normal_, Tensor.normal_, Tensor.log):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_numbers() -> Iterator[None]:
    """Context: create tensors on the `meta` device, where they take no memory. Computations are
    skipped, because PyTorch would import its compiler for them, which takes two seconds."""
    with torch.device("meta"), _NothingComputed():
        yield
