"""Collects the probabilities of every attention in a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from torch import Tensor

_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)
_num_recordings = 0  # of all threads: torch.compile cannot read a context variable, but this
_lock = Lock()


@contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Context: collect the probabilities `(B, H, Q, K)` of every attention, in the order of the
    calls. `reference` computes them. Other threads and tasks are not recorded. Meanwhile, code that
    is compiled with `fullgraph=True` raises an error of torch.compile."""
    global _num_recordings
    probabilities: list[Tensor] = []
    token = _recorded.set(probabilities)
    with _lock:
        _num_recordings += 1
    try:
        yield probabilities
    finally:
        with _lock:
            _num_recordings -= 1
        _recorded.reset(token)


def is_recording() -> bool:
    """Return whether `recording` collects probabilities, which fused kernels do not return."""
    return _num_recordings > 0 and _recorded.get() is not None


def record(probs: Tensor) -> None:
    """Store probabilities if a `recording` is active."""
    if is_recording() and (recorded := _recorded.get()) is not None:
        recorded.append(probs.detach())
