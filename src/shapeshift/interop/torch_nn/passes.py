"""The forward passes of an attention that gradient checkpointing may run again."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError


class Given(NamedTuple):
    """Positions that an attention gets by other ways than its arguments.

    Attributes:
        pos_q, pos_k: see `MultiheadAttention.forward`.
        by_call: whether a call of its layer gives them, which recomputation repeats, and not a
            block of `use_positions`.
    """

    pos_q: Tensor | None = None
    pos_k: Tensor | None = None
    by_call: bool = False

    def is_like(self, other: Given) -> bool:
        """Return whether these are the same tensors, perhaps detached."""
        return all(
            a is b or (a is not None and b is not None and a.is_set_to(b))
            for a, b in zip(self[:2], other[:2], strict=True)
        )


class _Pass:
    """A forward pass with a graph, which holds this object."""

    def __init__(self, given: Given):
        self.given, self.is_done = given, False

    def end(self, grad: object) -> None:
        """A hook of the graph: the backward pass has come."""
        self.is_done = True


class Passes:
    """What an attention has computed and gradient checkpointing may compute again.

    A backward pass that recomputes an attention does not say which forward pass it repeats. So all
    those that it may repeat must have had the positions that are given now.
    """

    def __init__(self) -> None:
        self._with_graph: WeakSet[_Pass] = WeakSet()
        # Reentrant checkpoints run it without a graph, so these passes are only counted.
        self._num_without = 0
        self._given_without: Given | None = None  # of all of them; None if they differ
        self._is_used = False

    def __reduce__(self) -> tuple[type[Passes], tuple[()]]:
        return Passes, ()  # a copy of a model has computed nothing

    def begin(self, given: Given) -> None:
        """Check the positions of a pass.

        Raises:
            ShapeshiftError: it is recomputed, perhaps with other positions than before.
        """
        self._is_used |= any(pos is not None for pos in given[:2])
        if torch._C._current_graph_task_id() == -1:  # no backward pass, and so no recomputation
            return
        waiting = [each for each in self._with_graph if not each.is_done]
        passes: list[Given | None] = [each.given for each in waiting or self._with_graph]
        if self._num_without:
            passes.append(self._given_without)
            self._num_without -= not waiting
        is_sure = bool(passes) and all(each and given.is_like(each) for each in passes)
        if self._is_used and not given.by_call and not is_sure:
            raise ShapeshiftError(
                "gradient checkpointing runs an attention again, perhaps with other positions than"
                " the first time; run the backward pass in `with use_positions(…):` of the"
                " positions of its forward pass (and outside if there were none), before a forward"
                " pass with others"
            )

    def end(self, given: Given, out: Tensor, *, training: bool) -> None:
        """Note a pass, whose output is `out`."""
        if out.grad_fn is not None:
            noted = _Pass(given)
            self._with_graph.add(noted)
            out.grad_fn.register_prehook(noted.end)
        elif training and not torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            before = given if not self._num_without else self._given_without
            self._given_without = given if before and given.is_like(before) else None
            self._num_without += 1
