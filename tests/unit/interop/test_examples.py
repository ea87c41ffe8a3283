"""The examples run, for a few steps."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


Run = Callable[..., dict[str, list[float]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Run:
    """Runs an example; returns the rows of the table it prints."""

    def run(name: str, *arguments: str) -> dict[str, list[float]]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
        return {line[0]: [float(cell) for cell in line[1:]] for line in lines}

    return run


@pytest.mark.parametrize(
    "name", ["shape_in_pytorch.py", "shape_in_huggingface.py", "shape_in_huggingface_trainer.py"]
)
def test_absolute_and_shape_side_by_side(name: str, run: Run) -> None:
    if "huggingface" in name:
        pytest.importorskip("transformers")
    if "trainer" in name:
        pytest.importorskip("accelerate")
    rows = run(name, "--steps", "10")
    assert list(rows) == ["absolute", "SHAPE"]
    assert all(len(row) == 6 and 0 <= min(row) <= max(row) <= 100 for row in rows.values())
    assert rows["absolute"] != rows["SHAPE"]


def test_language_model_with_kinds_of_the_registry(run: Run) -> None:
    options = "--steps 2 --max-offset 50 --kinds none shaw"
    rows = run("decoder_only_lm.py", *options.split())
    assert list(rows) == ["none", "shaw"]
    assert all(len(row) == 3 and min(row) > 1 for row in rows.values())


def test_graph_attention_with_and_without_labels(run: Run) -> None:
    rows = run("graph_attention.py", "--steps", "25")
    assert list(rows) == ["nodes", "edges", "labels"]
    assert all(len(row) == 3 and 50 < min(row) <= max(row) <= 100 for row in rows.values())


def test_a_model_gets_used_to_no_positions(run: Run) -> None:
    pytest.importorskip("transformers")
    rows = run("drop_positions.py", "--steps", "150")
    assert list(rows) == ["rotary", "removed", "recalibrated"]
    trained, removed, recalibrated = (row[0] for row in rows.values())
    assert removed > trained + 0.3
    assert recalibrated < removed - 0.3


@pytest.mark.slow
def test_methods_of_context_extension(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    run("context_extension.py", "--steps", "10", "--windows", "1", "--folder", str(tmp_path))
    for name, num_rows in {"rotary": 8, "drope": 1}.items():
        rows = json.loads((tmp_path / name / "context" / "context.json").read_text())["rows"]
        assert len(rows) == num_rows
        assert all(1 < perplexity < 2000 for row in rows for *_, perplexity in row["perplexity"])
        differs = {row["method"] for row in rows if row["cache"] > 1e-4}  # 1e-6 is usual
        assert differs == ({"dynamic", "longrope"} if name == "rotary" else set())


def test_every_example_is_run_somewhere() -> None:
    tests = Path(__file__).parents[2].rglob("test_*.py")
    tested = set(re.findall(r"\w+\.py", "".join(p.read_text(encoding="utf-8") for p in tests)))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= tested
