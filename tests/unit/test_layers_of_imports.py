"""Imports point one way: positions → model → decoding, training → evaluation → lab →
papers → report → cli."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shapeshift

ROOT = Path(shapeshift.__file__).parent
FOUNDATIONS = {"disk", "errors", "integrity", "schema", "seeds", "threads"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "disk": {"errors"},
    "integrity": {"disk", "errors"},
    "seeds": set(),
    "threads": set(),
    "schema": set(),
    "positions": {"errors"},
    "model": {"positions", *FOUNDATIONS},
    "data": FOUNDATIONS,
    "decoding": {"model", "positions", "data", *FOUNDATIONS},
    "training": {"model", "positions", "data", *FOUNDATIONS},
    "evaluation": {"decoding", "training", "model", "positions", "data", *FOUNDATIONS},
}
MAY_IMPORT["yaml_file"] = {"errors"}
MAY_IMPORT["foreign_names"] = set()
MAY_IMPORT["config_errors"] = {*MAY_IMPORT["decoding"], "decoding", "foreign_names"}
MAY_IMPORT["config_file"] = {*MAY_IMPORT["config_errors"], "config_errors", "yaml_file"}
MAY_IMPORT["config"] = {*MAY_IMPORT["evaluation"], "evaluation", *MAY_IMPORT["config_file"]}
MAY_IMPORT["config"] |= {"config_file"}
MAY_IMPORT["interop"] = {*MAY_IMPORT["config"], "config"}
MAY_IMPORT["export"] = {*MAY_IMPORT["config"], "config"}
MAY_IMPORT["lab"] = {*MAY_IMPORT["config"], "config", "export"}
MAY_IMPORT["papers"] = {*MAY_IMPORT["lab"], "lab"}
MAY_IMPORT["report"] = {*MAY_IMPORT["papers"], "papers"}
MAY_IMPORT["cli"] = {*MAY_IMPORT["report"], "report", "interop"}
MAY_IMPORT["__main__"] = {"cli"}


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


@pytest.mark.parametrize(
    "path", sorted((ROOT / "positions").glob("*.py")), ids=lambda path: path.name
)
def test_positions_need_torch_alone(path: Path) -> None:
    outside = {name.split(".")[0] for name in imported(path)} - {"shapeshift"}
    assert outside - set(sys.stdlib_module_names) <= {"torch"}


def test_the_table_has_no_cycle() -> None:
    left = dict(MAY_IMPORT)
    while left:
        free = [name for name, needs in left.items() if not needs & set(left)]
        assert free, f"a cycle among {sorted(left)}"
        for name in free:
            del left[name]


@pytest.mark.parametrize("module", ["shapeshift", "shapeshift.cli", "shapeshift.errors"])
def test_the_command_line_starts_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
