"""benchmarks/positions.py says in one line what it cannot measure."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "positions.py"


@pytest.mark.parametrize("extra", [[], ["--memory"], ["--attention"]])
def test_an_unknown_system_is_named(
    extra: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--systems", "ape,apee", *extra])
    with pytest.raises(SystemExit) as raised:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert raised.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("--systems: unknown system 'apee'; did you mean 'ape'? (known: ape,")
