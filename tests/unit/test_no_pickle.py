"""Nothing of the package runs code that it reads: no pickle, under any of its names."""

import re
from pathlib import Path

import pytest

import shapeshift

ROOT = Path(shapeshift.__file__).parent
FORBIDDEN = re.compile(
    r"pickle|\bdill\b|\bjoblib\b|\bmarshal\b|\bshelve\b|torch\.(load|save|hub)\b"
    r"|from torch import .*\b(load|save)\b|(np|numpy)\.load\b|(?<![.\w])(eval|exec)\("
    r"|yaml\.(unsafe_)?load\("
)


def lines_that_run_what_they_read(root):
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)
        if FORBIDDEN.search(line)
    ]


def test_the_package_unpickles_nothing():
    assert lines_that_run_what_they_read(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import cloudpickle as c",
        "from torch import nn, load",
        "state = torch.load(path, weights_only=True)",
        "torch.save(x, path)",
        "np.load(path, allow_pickle=True)",
        "import joblib",
        "import marshal, dill",
        "yaml.unsafe_load(file)",
    ],
)
def test_the_search_finds_it(tmp_path, line):
    (tmp_path / "module.py").write_text(f"x = 1\n{line}\n", encoding="utf-8")
    assert lines_that_run_what_they_read(tmp_path) == [f"module.py:2: {line}"]
