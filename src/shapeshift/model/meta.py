"""Modules without numbers, whose shapes and settings are all that matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class _NothingComputed(TorchFunctionMode):
    """Leaves a tensor as it is where a module would draw normal numbers, or take logarithms."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (nn.init.normal_, Tensor.normal_, Tensor.log):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_numbers() -> Iterator[None]:
    """Make tensors on the `meta` device, where they take no memory.

    PyTorch imports its compiler to compute numbers there, which takes two seconds.
    """
    with torch.device("meta"), _NothingComputed():
        yield
