"""Which backend of attention served, and which may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from shapeshift.attention import BACKENDS
from shapeshift.attention.backends import blocked, cpu


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count calls by the name of the backend that served them."""
    calls: Counter[str] = Counter()

    def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return run

    with ExitStack() as stack:
        for name, backend in BACKENDS.items():
            stack.enter_context(patch.object(backend, "run", counted(backend.run, name)))
        yield calls


@contextmanager
def only(without: Sequence[str], block: int) -> Iterator[None]:
    """Let some backends refuse all calls; compute at most `block` scores at a time where it is not
    0, as for calls too large for a test."""
    with ExitStack() as stack:
        for name in without:
            stack.enter_context(patch.object(BACKENDS[name], "refuses", lambda call: "left out"))
        if block:
            stack.enter_context(patch.object(blocked, "BLOCK", block))
            stack.enter_context(patch.object(cpu, "RECOMPUTED_FROM", 2))
        yield
