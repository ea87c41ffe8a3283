"""The examples run, for a few steps."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> dict[str, list[float]]:
    """Run an example; return the rows of the table it prints."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    return {line[0]: [float(cell) for cell in line[1:]] for line in lines}


@pytest.mark.parametrize("name", ["shape_in_pytorch.py", "shape_in_huggingface.py"])
def test_absolute_and_shape_side_by_side(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if "huggingface" in name:
        pytest.importorskip("transformers")
    rows = run(name, ["--steps", "25"], monkeypatch, capsys)
    assert list(rows) == ["absolute", "SHAPE"]
    assert all(len(row) == 6 and 0 <= min(row) <= max(row) <= 100 for row in rows.values())
    assert rows["absolute"] != rows["SHAPE"]


def test_language_model_with_kinds_of_the_registry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["--steps", "3", "--max-offset", "50", "--kinds", "none", "sinusoidal", "shaw"]
    rows = run("decoder_only_lm.py", arguments, monkeypatch, capsys)
    assert list(rows) == ["none", "sinusoidal", "shaw"]
    assert all(len(row) == 3 and min(row) > 1 for row in rows.values())


def test_every_example_is_run_here() -> None:
    tested = set(re.findall(r"\w+\.py", Path(__file__).read_text(encoding="utf-8")))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= tested
