"""A module in float64, with simulated rounding errors or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift.attention import recording
from shapeshift.positions import Representation

from .compare import Results
from .definition import Arithmetic


@contextmanager
def rounding(model: nn.Module, compute: Arithmetic) -> Iterator[None]:
    """Compute with rounding errors in the weights and in what each module returns, but for the
    hooks of representations."""
    if compute.is_exact:
        yield
        return

    def rounded(x: Any) -> Any:
        if isinstance(x, Tensor):
            return compute(x) if x.is_floating_point() else x
        return tuple(map(rounded, x)) if type(x) is tuple else x

    before = [p.detach().clone() for p in model.parameters()]
    handles = [
        module.register_forward_hook(lambda _, inputs, out: rounded(out))
        for module in model.modules()
        if not isinstance(module, Representation | nn.ModuleList)
    ]
    try:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + compute.errors(p))
        yield
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for p, old in zip(model.parameters(), before, strict=True):
                p.copy_(old)


def references(
    model: nn.Module, unit: float, run: Callable[[nn.Module], Results]
) -> tuple[Results, Callable[[int], Results]]:
    """Return what `run` returns for a copy of the model in float64, by the definition: exactly, and
    for a seed, with the rounding errors of a dtype with unit roundoff `unit`."""
    twin = deepcopy(model).double()

    def compute(seed: int | None) -> Results:
        with rounding(twin, Arithmetic(unit, seed)), recording():
            return run(twin)

    return compute(None), compute
