"""Gradient checkpointing: what recomputes a forward pass must see the numbers that it drew.

A recomputation runs in the backward pass, perhaps after other passes have drawn, and nothing tells
it which pass it repeats. But torch restores its default CPU generator for it. So a draw that may be
made again takes a number of that generator, its tag, and the state that it was drawn from is kept
under that tag; the recomputation takes the same number and finds the state. What is drawn depends
on the state alone. Draws that nothing can make again leave torch's generator as it is.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from shapeshift.errors import ShapeshiftError

from . import draws

KEPT = 4096
"""Draws of passes under checkpointing that are kept, each up to 5 kB; older ones are forgotten."""


@dataclass
class _Kept:
    state: Tensor | None
    """None where several passes have one tag, differ, and may yet be recomputed."""
    graphs: tuple[weakref.ref[Any] | None, ...]
    """Of each pass with this tag: it is recomputed only while this, a hook of its saved tensors,
    lives. None where nothing tells."""
    num_used: int = 0

    def is_over(self) -> bool:
        """Tell whether no pass with this tag will be recomputed any more."""
        if None in self.graphs:
            return self.num_used >= len(self.graphs)
        return all(graph is None or graph() is None for graph in self.graphs)


_kept: OrderedDict[int, _Kept] = OrderedDict()


def is_running() -> bool:
    """Tell whether a backward pass runs: what draws there recomputes a forward pass."""
    return torch._C._current_graph_task_id() != -1


def state_of_pass(state: Tensor, with_grad: bool) -> Tensor:
    """Return the state to draw from: `state`, or in a recomputation a copy of its pass's.

    Not for compiled code, which has to call it inside an operator.

    Args:
        state: of a generator or a stream, before the draw.
        with_grad: `torch.is_grad_enabled()` where the draw is asked for, not inside an operator.

    Raises:
        ShapeshiftError: if this recomputes a pass whose state is not known.
    """
    if is_running():
        return _recall()
    hooks: tuple[Any, Any] | None = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is not None:  # those of non-reentrant checkpointing, or some others
        _keep(state, _watched(hooks[1]))
    elif not with_grad:  # reentrant checkpointing, or `torch.no_grad`
        _keep(state, None)
    return state


@torch.library.custom_op(
    "shapeshift::draw_integers_of_pass",
    mutates_args=("state",),
    schema="(Tensor(a!) state, SymInt upper, SymInt count, bool by_rank, bool with_grad) -> Tensor",
)
def _integers(state: Tensor, upper: int, count: int, by_rank: bool, with_grad: bool) -> Tensor:
    state = state_of_pass(state, with_grad)
    number = rank() if by_rank else 0
    if number:
        own = int(draws.integers(state, 2**62, 1))
        state = draws.seeded(own + number)  # the others have the same `own`
    drawn: Tensor = draws.integers(state, upper, count)
    return drawn


@_integers.register_fake
def _(state: Tensor, upper: int, count: int, by_rank: bool, with_grad: bool) -> Tensor:
    return torch.empty(count, dtype=torch.int64, device="cpu")


@torch.library.custom_op(
    "shapeshift::draw_uniform_of_pass",
    mutates_args=("state",),
    schema="(Tensor(a!) state, SymInt rows, SymInt columns, bool with_grad) -> Tensor",
)
def _uniform(state: Tensor, rows: int, columns: int, with_grad: bool) -> Tensor:
    drawn: Tensor = draws.uniform(state_of_pass(state, with_grad), rows, columns)
    return drawn


@_uniform.register_fake
def _(state: Tensor, rows: int, columns: int, with_grad: bool) -> Tensor:
    return torch.empty(rows, columns, dtype=torch.float32, device="cpu")


def integers(state: Tensor, upper: int, count: int, *, by_rank: bool = False) -> Tensor:
    """As `draws.integers`; in a recomputation, what the pass that it repeats has drawn.

    Args:
        state: of a generator, from `draws.seeded`.
        upper: one more than the largest number.
        count: how many numbers.
        by_rank: each process of torch.distributed draws its own. The first one draws what it would
            alone.

    Raises:
        ShapeshiftError: if this recomputes a pass whose draw is not known.
    """
    drawn: Tensor = _integers(state, upper, count, by_rank, torch.is_grad_enabled())
    return drawn


def uniform(state: Tensor, rows: int, columns: int) -> Tensor:
    """As `draws.uniform`; in a recomputation, what the pass that it repeats has drawn.

    Raises:
        ShapeshiftError: if this recomputes a pass whose draw is not known.
    """
    drawn: Tensor = _uniform(state, rows, columns, torch.is_grad_enabled())
    return drawn


def rank() -> int:
    """Return the number of this process in torch.distributed, 0 without it."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0


def _tag() -> int:
    return int(torch.randint(2**62, (), dtype=torch.int64, device="cpu"))


def _keep(state: Tensor, graph: weakref.ref[Any] | None) -> None:
    tag = _tag()
    other = _kept.pop(tag, None)  # torch's generator was seeded anew with the same number
    if other is None or other.is_over():
        _kept[tag] = _Kept(state.clone(), (graph,))
    else:
        alike = other.state is not None and _equal(other.state, state)
        _kept[tag] = _Kept(state.clone() if alike else None, (*other.graphs, graph), other.num_used)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)


def _recall() -> Tensor:
    found = _kept.get(_tag())
    if found is None:
        raise ShapeshiftError(
            "gradient checkpointing recomputes offsets of positions, and which pass drew them"
            " cannot be told; checkpoint with preserve_rng_state=True (torch's default) and outside"
            " of what is compiled, or keep the positions out of what is checkpointed"
        )
    if found.state is None:
        raise ShapeshiftError(
            "gradient checkpointing recomputes offsets of positions, but two passes began with the"
            " same state of torch's generator; call torch.manual_seed with another number, or not"
            " between a pass and its backward pass (passes under torch.no_grad and those given up"
            " count: use model.eval() for what is not trained)"
        )
    found.num_used += 1
    return found.state.clone()


def _watched(hook: Any) -> weakref.ref[Any] | None:
    """Return what tells whether checkpointing still holds its hook; of others nothing is known."""
    return weakref.ref(hook) if isinstance(hook, types.FunctionType) else None


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
