"""Gradient checkpointing: what recomputes a forward pass must see the numbers that it drew.

A recomputation runs in the backward pass, perhaps after other passes have drawn, and nothing tells
it which pass it repeats. But torch restores its default CPU generator for it. So a draw that may be
made again takes a number of that generator, its tag, and the state that it was drawn from is kept
under that tag; the recomputation takes the same number and finds the state. What is drawn depends
on the state alone. Other draws, without any hook of saved tensors and outside `torch.no_grad`,
leave torch's generator as it is.
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
    """Passes with one tag that have a hook of saved tensors in common, or all that have none."""

    state: Tensor | None
    """None where they differ."""
    hook: weakref.ref[Any] | None
    """Of checkpointing: the pass is recomputed only while it lives."""
    left: int = 1
    """How many have not been recomputed."""

    def may_come(self) -> bool:
        """Tell whether any may yet be recomputed."""
        return self.left > 0 if self.hook is None else self.hook() is not None


_kept: OrderedDict[int, list[_Kept]] = OrderedDict()


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


def _keep(state: Tensor, hook: weakref.ref[Any] | None) -> None:
    tag = _tag()
    # There are others if torch's generator was seeded anew with the same number.
    live = [each for each in _kept.pop(tag, ()) if each.may_come()]
    same = next((each for each in live if each.hook == hook), None)
    if same is None:
        live.append(_Kept(state.clone(), hook))
    else:
        same.left += 1
        if same.state is not None and not _equal(same.state, state):
            same.state = None
    _kept[tag] = live
    while len(_kept) > KEPT:
        _kept.popitem(last=False)


def _recall() -> Tensor:
    known = _kept.get(_tag())
    if known is None:
        raise ShapeshiftError(
            "gradient checkpointing recomputes offsets of positions, and which pass drew them"
            " cannot be told; checkpoint with preserve_rng_state=True (torch's default) and outside"
            " of what is compiled, or keep the positions out of what is checkpointed"
        )
    found = next(filter(_Kept.may_come, known), known[0])  # or a retained graph's, again
    same = found.state
    others = (each.state for each in known if each is not found and each.may_come())
    if same is None or not all(each is not None and _equal(same, each) for each in others):
        raise ShapeshiftError(
            "gradient checkpointing recomputes offsets of positions, but passes began with the"
            " same state of torch's generator; call torch.manual_seed with another number, or not"
            " between a pass and its backward pass (passes under torch.no_grad and those given up"
            " count: use model.eval() for what is not trained)"
        )
    found.left -= 1
    return same.clone()


def _watched(hook: Any) -> weakref.ref[Any] | None:
    """Return what tells whether checkpointing still holds its hook; of others nothing is known."""
    return weakref.ref(hook) if isinstance(hook, types.FunctionType) else None


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
