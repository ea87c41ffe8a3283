"""Which way attention was computed: the only place that knows what the ways are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from shapeshift.attention import backends
from shapeshift.model import attention as model_attention


def _ways() -> Iterator[tuple[Any, str, str]]:
    """Yield owner, function and name of each way."""
    if hasattr(backends, "BACKENDS"):
        for name, module in backends.BACKENDS.items():
            yield module, "run", name
    else:
        yield backends, "attend_rows", "kernel"
        yield backends, "_attend_in_blocks", "blocks"
        yield backends, "attend_with_probs", "plain"
        yield backends.F, "scaled_dot_product_attention", "sdpa"
        yield model_attention, "attend_rows", "kernel"
        yield model_attention, "attend_few", "few"


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count calls by the name of the backend that served them."""
    calls: Counter[str] = Counter()

    def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            out = function(*args, **options)
            calls[name] += out is not None
            return out

        return run

    patches = [
        patch.object(owner, name, counted(getattr(owner, name), way))
        for owner, name, way in _ways()
    ]
    for each in patches:
        each.start()
    try:
        yield calls
    finally:
        for each in patches:
            each.stop()
