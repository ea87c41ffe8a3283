"""Random draws that a compiled model makes anew in every call.

A `torch.Generator` cannot enter a graph: `torch.compile` would break there, or freeze what it drew.
Here the generator is a tensor that holds its state, and a draw is an operator that changes it. To a
compiler that is an ordinary write, which it may neither leave out, repeat nor move; and the numbers
are those of a `torch.Generator` with the same seed, compiled or not.
"""

from __future__ import annotations

import torch
from torch import Tensor

_UNIFORM = "shapeshift::draw_uniform"
_INTEGERS = "shapeshift::draw_integers"


def seeded(seed: int) -> Tensor:
    """Return the state of a fresh CPU generator, bytes, that `uniform` and `integers` go on from.

    The state stays on the CPU, wherever the model is: one seed draws the same on every device.
    """
    return torch.Generator().manual_seed(seed).get_state()


@torch.library.custom_op(
    _INTEGERS,
    mutates_args=("state",),
    schema="(Tensor(a!) state, SymInt upper, SymInt count) -> Tensor",
)
def integers(state: Tensor, upper: int, count: int) -> Tensor:
    """Return `(count,)` numbers from U{0, …, upper − 1}, int64, and move `state` on."""
    generator = _continued(state)
    drawn = torch.randint(upper, (count,), generator=generator, device="cpu")
    state.copy_(generator.get_state())
    return drawn


@integers.register_fake
def _(state: Tensor, upper: int, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64, device="cpu")


@torch.library.custom_op(
    _UNIFORM,
    mutates_args=("state",),
    schema="(Tensor(a!) state, SymInt rows, SymInt columns) -> Tensor",
)
def uniform(state: Tensor, rows: int, columns: int) -> Tensor:
    """Return `(rows, columns)` numbers from U[0, 1), float32, and move `state` on."""
    generator = _continued(state)
    drawn = torch.rand(rows, columns, generator=generator, dtype=torch.float32, device="cpu")
    state.copy_(generator.get_state())
    return drawn


@uniform.register_fake
def _(state: Tensor, rows: int, columns: int) -> Tensor:
    return torch.empty(rows, columns, dtype=torch.float32, device="cpu")


def _continued(state: Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator
