"""Golden vectors, recomputed by the NumPy reader of the examples."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shapeshift.cli import app
from shapeshift.positions import KINDS, Representation

ROOT = Path(__file__).parents[3]
READER = runpy.run_path(str(ROOT / "examples" / "golden_vectors.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors") / "golden"
    result = CliRunner().invoke(app, ["positions", "golden", "--output", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def test_numpy_computes_the_same(folder: Path) -> None:
    largest = READER["compare"](folder)
    assert max(largest.values()) < READER["BOUND"] == 1e-12
    cases = json.loads((folder / "golden.json").read_text())["cases"]
    # A learned table has nothing to recompute. TUPE, and kinds that act on scores, need the weights
    # of a whole attention.
    on_scores = {name for name, x in KINDS.items() if x.build.score is not Representation.score}
    assert on_scores
    without = {"none", "learned", "tupe"} | on_scores
    assert {case["kind"] for case in cases} == {*KINDS, "axial"} - without


def test_the_guide_names_the_tensors_of_each_case(folder: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "testing-engines.md").read_text(encoding="utf-8")
    table = guide.partition("## The cases")[2].partition("\n\nFor rotary")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:3] == "| `"]
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        fitting = [
            (len(start), cells)
            for cells in rows
            for start, more in re.findall("`([\\w-]+)(…?)`", cells[0].partition(":")[0])
            if case["name"] == start or (more and case["name"].startswith(start))
        ]
        _, cells = max(fitting)
        named = {*re.findall("`([a-z_0-9]+)`", f"{cells[1]} {cells[2]}")}
        tensors = set(case["tensors"])
        assert (named <= tensors) if "weights" in cells[1] else (named == tensors), case["name"]
        assert ("theta_float32" in named) == ("attention_factor" in case)


def test_they_are_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["positions", "golden", "--output", str(tmp_path)])
    for name in ("golden.json", "golden.safetensors"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_the_javascript_of_the_guide_computes_the_same(folder: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    guide = (ROOT / "docs" / "guides" / "testing-engines.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```js\n(.*?)^```", guide, flags=re.MULTILINE | re.DOTALL)
    (folder.parent / "reader.mjs").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [node, "reader.mjs"], cwd=folder.parent, capture_output=True, text=True, check=True
    )
    largest = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}
    assert len(largest) == 13
    assert max(largest.values()) < 1e-10


WRONG: dict[str, dict[str, Any]] = {
    "rotary-halves": {"pairs": "interleaved"},
    "rotary-yarn-of-the-paper": {"original_length": 4097},
    "t5-decoder": {"causal": False},
    "t5-encoder": {"max_distance": 127},
    "shaw": {"max_distance": 3},
    "xpos": {"gamma": 0.41},
    "rotary-sections-interleaved": {"section_order": "blocks"},
    "axial-same": {"order": "alternating"},
    "sinusoidal-halves": {"channels": "interleaved"},
}


@pytest.mark.parametrize("name", WRONG)
def test_an_engine_with_another_option_is_found(name: str, folder: Path, tmp_path: Path) -> None:
    about = json.loads((folder / "golden.json").read_text())
    about["cases"] = [case for case in about["cases"] if case["name"] == name]
    about["cases"][0]["options"].update(WRONG[name])
    (tmp_path / "golden.json").write_text(json.dumps(about))
    (tmp_path / "golden.safetensors").write_bytes((folder / "golden.safetensors").read_bytes())
    assert READER["compare"](tmp_path)[name] > 1e-6
