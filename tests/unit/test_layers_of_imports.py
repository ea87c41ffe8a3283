"""Imports point one way: _system → kernels → positions → attention → interop, model → decoding,
training → evaluation → config → export → run → study → serve → cli. The library's rooms need
torch alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import shapeshift
from shapeshift.__main__ import TESTBED

from .cli.running import python

ROOT = Path(shapeshift.__file__).parent
TORCH_ONLY = ("kernels", "positions", "attention", "interop", "check")
MODELS = {"_system", "kernels", "positions", "attention", "model"}
TESTBED_ROOMS = {*MODELS, "data", "decoding", "training", "evaluation"}
MAY_IMPORT: dict[str, set[str]] = {
    "_system": set(),
    "kernels": {"_system"},
    "positions": {"_system", "kernels"},
    "attention": {"_system", "kernels", "positions"},
    "interop": {"_system", "attention", "positions"},
    "check": {"_system", "attention", "interop", "positions"},
    "model": MODELS,
    "data": {"_system"},
    "decoding": {*MODELS, "data"},
    "training": {*MODELS, "data"},
    "evaluation": {"_system", "data", "decoding", "model", "positions", "training"},
    "config": TESTBED_ROOMS,
    "export": {*TESTBED_ROOMS, "config"},
    "run": {*TESTBED_ROOMS, "check", "config", "export"},
    "study": {*TESTBED_ROOMS, "check", "config", "export", "run"},
    "serve": {*TESTBED_ROOMS, "config", "export", "run", "study"},
    "cli": {*TESTBED_ROOMS, "check", "config", "export", "interop", "run", "serve", "study"},
    "__main__": {"_system", "cli"},
}


def part_of(module: str) -> str:
    """`shapeshift.model.loss` -> `model`; what the package itself holds, such as the version, is
    part of nothing."""
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    """Return the full names of all modules a file imports, wherever in the file."""
    package = ["shapeshift", *path.relative_to(ROOT).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            if origin == "shapeshift":  # from shapeshift import model
                names |= {f"{origin}.{a.name}" for a in node.names if (ROOT / a.name).exists()}
            names.add(origin)
    return names


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in MAY_IMPORT, f"say in this test what {own} may import"
    ours = {name for name in imported(path) if name.split(".")[0] == "shapeshift"}
    assert {part_of(name) for name in ours} - {own, ""} <= MAY_IMPORT[own]


@pytest.mark.parametrize("room", TORCH_ONLY)
def test_the_library_imports_torch_alone(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        outside = {name.split(".")[0] for name in imported(path)} - {"shapeshift"}
        # Of transformers inside functions alone: the test below imports the library without it.
        # Triton comes with PyTorch for GPUs, and its file is imported there alone.
        allowed = {"torch", "triton"} if path.name == "gpu.py" else {"torch", "transformers"}
        assert outside - set(sys.stdlib_module_names) <= allowed, path


BLOCKED = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {TESTBED | {"transformers"}!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Makes a process believe that the extra `testbed` is not installed."""


def test_the_library_works_without_the_testbed() -> None:
    modules = "shapeshift.positions, shapeshift.interop.torch_nn, shapeshift.check"
    code = f"{BLOCKED}import {modules}; from shapeshift import SHAPE, shift_positions; SHAPE(dim=8)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_the_command_line_without_the_testbed_names_the_remedy() -> None:
    code = f"{BLOCKED}from shapeshift.__main__ import main; main()"
    ended = python("-c", code)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "pip install '.[testbed]'" in ended.stderr


def test_contributing_has_a_line_for_each_folder() -> None:
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = re.findall(r"^[├└]── (\w+)/ +\S", text, re.MULTILINE)
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"__pycache__"}
    assert sorted(lines) == sorted(folders)
    assert set(lines[:5]) == {*TORCH_ONLY}


def test_the_testbed_is_what_pyproject_says() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["testbed"]
    names = {Requirement(line).name.replace("pyyaml", "yaml") for line in extra}
    assert names == TESTBED
    assert [Requirement(line).name for line in project["project"]["dependencies"]] == ["torch"]
