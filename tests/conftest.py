"""One thread for all tests, and for the processes that they start.

Their tensors are tiny: threads that wait for each other cost several times what they save.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
from collections.abc import Callable, Iterator

import pytest

# What a script has started with `&` ignores it, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = {
    "test_compile.py",
    "test_corruption.py",
    "test_examples.py",
    "test_export.py",
    "test_launchers.py",
    "test_kills.py",
    "test_line_contract_fuzz.py",
    "test_memory.py",
    "test_openapi.py",
    "test_score.py",
    "test_serve.py",
    "test_serve_under_load.py",
    "test_signals.py",
    "test_streams.py",
    "test_threads.py",
    "test_translate.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole files of tests that start processes or compile models."""
    for item in items:
        if "integration" in item.path.parts or item.path.name in LONG:
            item.add_marker(pytest.mark.long)


class Backend:
    """One way to compute attention, which serves wherever it can; `calls` counts how often.
    `default` leaves the choice to the library."""

    def __init__(self, name: str):
        self.name, self.calls = name, 0

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let attention compute this way until `stop`, or until `monkeypatch` is undone."""
        self.stop = monkeypatch.undo
        from shapeshift.attention import backends
        from shapeshift.kernels.attention import SentenceAttention

        if self.name == "default":
            return
        decide = backends.prefers_fused
        if self.name == "kernel":
            monkeypatch.setattr(backends, "prefers_fused", lambda *_: False)
            self._count(monkeypatch, SentenceAttention, "forward")
            return
        monkeypatch.setattr(backends, "vectors_of", lambda *_: None)
        if self.name == "sdpa":  # as on a GPU
            monkeypatch.setattr(
                backends, "prefers_fused", lambda p, q, *rest: decide(p, q.to("meta"), *rest)
            )
            self._count(monkeypatch, backends.F, "scaled_dot_product_attention")
            return
        monkeypatch.setattr(backends, "prefers_fused", lambda *_: False)
        if self.name == "blocked":
            monkeypatch.setattr(backends, "BLOCK", 50)  # parts of one sentence, a few queries
            monkeypatch.setattr(backends, "RECOMPUTED_FROM", 2)
            self._count(monkeypatch, backends, "_attend_in_blocks")
        else:
            self._count(monkeypatch, backends, "attend_with_probs")

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        function: Callable[..., object] = getattr(owner, name)

        def counted(*args: object, **options: object) -> object:
            self.calls += 1
            mask = options.get("attn_mask")
            assert mask is None or mask.stride(-1) == 1, "no fused kernel of a GPU takes it"
            return function(*args, **options)

        monkeypatch.setattr(owner, name, counted)


@pytest.fixture(params=["eager", "blocked", "sdpa"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A way to compute attention: each test that asks for it runs with all of them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        chosen = Backend(request.param)
        chosen.use(monkeypatch)
        yield chosen
