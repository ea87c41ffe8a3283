"""One thread for all tests, and for the processes that they start.

Their tensors are tiny: threads that wait for each other cost several times what they save.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
from collections.abc import Callable, Iterator
from typing import Any

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
    """A backend of attention, which serves wherever it can, and `reference` elsewhere; `calls`
    counts how often it did. `default` leaves the choice to the library."""

    def __init__(self, name: str):
        self.name, self.calls = name, 0

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let attention compute this way until `stop`, or until `monkeypatch` is undone."""
        self.stop = monkeypatch.undo
        from shapeshift.attention import backends
        from shapeshift.attention.backends import blocked, cpu, reference, sdpa

        if self.name == "default":
            return
        chosen = backends.BACKENDS[self.name]
        monkeypatch.setattr(backends, "BACKENDS", {self.name: chosen, "reference": reference})
        if chosen is sdpa:  # as on a GPU
            monkeypatch.setattr(sdpa, "refuses", lambda call: "mixes" if call.mixes else None)
        if chosen is blocked:
            monkeypatch.setattr(blocked, "BLOCK", 50)  # parts of one sentence, a few queries
            monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 2)
            monkeypatch.setattr(cpu, "refuses", lambda call: "not in this test")
        run = chosen.run

        def counted(call: object) -> object:
            self.calls += 1
            return run(call)

        monkeypatch.setattr(chosen, "run", counted)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the backends of attention that have run in this test, one for each call.
    `blocked` counts once, not its parts."""
    from shapeshift.attention import BACKENDS

    names: list[str] = []

    def watched(name: str, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(call: Any) -> Any:
            if not call.is_block:
                names.append(name)
            return run(call)

        return counted

    for name, module in BACKENDS.items():
        monkeypatch.setattr(module, "run", watched(name, module.run))
    return names


@pytest.fixture(params=["reference", "blocked", "sdpa"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A way to compute attention: each test that asks for it runs with all of them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        chosen = Backend(request.param)
        chosen.use(monkeypatch)
        yield chosen
