"""The notebooks run from top to bottom; their training is short here."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from ..unit.cli.running import shapeshift

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(autouse=True)
def _figures_need_no_screen() -> Any:
    mpl.use("agg")
    yield
    plt.close("all")


def run(name: str, folder: Path, setting: str) -> dict[str, Any]:
    """Run the cells of a notebook, with another line for a setting; return its names."""
    notebook = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        text = "".join(cell["source"])
        text = re.sub(rf"^{setting.partition('=')[0]}= .*", setting, text, flags=re.MULTILINE)
        if text.startswith("!shapeshift "):
            line = re.sub(r"{(\w+)}", lambda found: str(names[found[1]]), text)
            status, out, err = shapeshift(folder, *shlex.split(line)[1:])
            assert status == 0, out + err
        else:
            exec(text, names)
    return names


def test_shape_in_your_model(tmp_path: Path) -> None:
    names = run("shape_in_your_model.ipynb", tmp_path, "STEPS = 200")
    absolute, shifted = names["accuracies"].values()
    at_48 = names["lengths"].index(48)
    assert shifted[0] > 95 < absolute[0]  # within the lengths of training
    assert shifted[at_48] > absolute[at_48] + 20


@pytest.mark.slow
def test_compare_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run("compare_positions.ipynb", tmp_path, "PAIRS, UPDATES = 400, 4")
    assert set(names["seen"]) == {"ape", "shape", "rope"}
    similar = {name: each.similarity[-1] for name, each in names["seen"].items()}
    assert similar["rope"].min() > 0.999 > similar["ape"].min()
