"""docs/tutorials/own-kind.md: its snippets run, the kind passes the contract tests, and the command
line trains, compares, translates, exports and checks it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from shapeshift.positions import KINDS, registry

from ..pages import ROOT, blocks
from ..unit.cli.running import ENVIRONMENT, python, shapeshift
from .conftest import MINE

PAGE = "docs/tutorials/own-kind.md"
SNIPPETS = blocks(PAGE, "python")
REGISTER = next(each for each in SNIPPETS if "KINDS[" in each)


def test_every_snippet_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "root_distance.py").write_text(SNIPPETS[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        exec("\n".join(SNIPPETS), {"__name__": "root_distance"})
    finally:
        KINDS.pop("root_distance", None)
        registry._own.clear()
        sys.modules.pop("root_distance", None)


@pytest.mark.slow
def test_the_kind_passes_the_contract_tests(tmp_path: Path) -> None:
    (tmp_path / "root_distance.py").write_text(SNIPPETS[0], encoding="utf-8")
    (tmp_path / "register_root_distance.py").write_text(REGISTER, encoding="utf-8")
    lines = "".join(blocks(PAGE, "sh"))
    (command,) = re.findall(r"^PYTHONPATH=\. \.venv/bin/python (.*)$", lines, flags=re.MULTILINE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = python(*command.split(), cwd=ROOT, env=ENVIRONMENT | {"PYTHONPATH": path})
    assert ended.returncode == 0, ended.stdout
    assert int(re.findall(r"(\d+) passed", ended.stdout)[0]) > 50


PARTS = "parts: [{kind: root_distance:RootDistance}]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kind, a measure and files that have the names of modules of Python's."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "root_distance.py").write_text(SNIPPETS[0], encoding="utf-8")
    (folder / "own_measure.py").write_text(
        "from shapeshift.run.measures import Result\n"
        "def count(run, data):\n    return [Result(metric='count', value=3.0)]\n",
        encoding="utf-8",
    )
    for hidden in ("tokenize", "signal", "numpy"):
        (folder / f"{hidden}.py").write_text("raise SystemExit('hidden')\n", encoding="utf-8")
    (folder / "mine.yaml").write_text(
        f"{MINE}position: {{name: root, {PARTS}}}\n", encoding="utf-8"
    )
    (folder / "text.en").write_text("A man.\n", encoding="utf-8")
    return folder


def command(folder: Path, *arguments: str, status: int = 0) -> str:
    """Run `python -m shapeshift` in a process of its own; return all that it printed."""
    ended = python("-m", "shapeshift", *arguments, cwd=folder)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def command_here(folder: Path, *arguments: str) -> str:
    """Run a command in this process, which then forgets the kind; return all that it printed."""
    paths = [*sys.path]
    try:
        status, out, err = shapeshift(folder, *arguments)
    finally:
        sys.path[:] = paths
        registry._own.clear()
        sys.modules.pop("root_distance", None)
    assert status == 0, out + err
    return out + err


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    command(folder, "train", "mine.yaml", "--run", "run")
    return folder / "run"


def test_the_command_line_does_all_with_a_kind_of_ones_own(folder: Path, trained: Path) -> None:
    assert "options: none" in command_here(folder, "positions", "root_distance:RootDistance")
    command_here(folder, "train", "mine.yaml", "--dry-run")
    command_here(folder, "translate", "run", "text.en")
    command_here(folder, "inspect", "run", "A man.")
    explained = ("--explain", "--train", "--device", "cuda", "--dtype", "bf16")
    shown = command_here(folder, "positions", "root_distance:RootDistance", *explained)
    assert [*re.findall(r"^  (\w+) +serves$", shown, re.MULTILINE)] == ["triton"]
    if find_spec("ctranslate2"):
        written = command_here(folder, "export", "run", "--to", "ctranslate2")
        assert "exact after rewriting" in written
    checked = command_here(folder, "check", "run", "--max-length", "10")
    assert "FAIL" not in checked
    assert re.search(r"export parity +onnx +pass", checked) or not find_spec("onnxruntime")


@pytest.mark.slow
def test_workers_import_kinds_and_measures(folder: Path) -> None:
    system = f"root 'position={{name: root, {PARTS}}}'"
    shown = command(folder, "compare", "mine.yaml", "--position", "ape", "--position", system)
    assert re.search(r"^  root +\d", shown, re.MULTILINE)
    axes = "{kind: {ape: [position=ape], root: []}}"
    column = "columns: {count: {metric: count}}"
    (folder / "study.yaml").write_text(
        f"title: t\ngrid:\n  base: mine.yaml\n  axes: {axes}\n  measures: ['own_measure:count']\n"
        f"tables:\n  - {{title: t, rows: [kind], {column}}}\n",
        encoding="utf-8",
    )
    study = ("reproduce", "study.yaml", "--directory", "compared")
    assert re.search(r"^  root +3\.00", command(folder, *study), re.MULTILINE)
    # A measure that changed is taken again; the runs are not trained again.
    logs = {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}
    source = (folder / "own_measure.py").read_text(encoding="utf-8")
    (folder / "own_measure.py").write_text(source.replace("3.0", "4.0"), encoding="utf-8")
    assert re.search(r"^  root +4\.00", command(folder, *study), re.MULTILINE)
    assert logs == {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}


@pytest.mark.slow
def test_a_run_never_brings_its_module_and_a_changed_one_is_refused(
    folder: Path, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, folder / "other")
    missing = command(
        tmp_path, "translate", str(folder / "other"), str(folder / "text.en"), status=1
    )
    assert "there is no module 'root_distance'" in missing
    assert "Traceback" not in missing
    ours = folder / "root_distance.py"
    (folder / "other" / "root_distance.py").write_bytes(ours.read_bytes())
    inside = command(folder / "other", "translate", ".", str(folder / "text.en"), status=1)
    assert "whose code is not run" in inside
    kinds = json.loads((folder / "other" / "kinds.json").read_text(encoding="utf-8"))
    assert [*kinds] == ["root_distance:RootDistance"]
    copy = tmp_path / "root_distance.py"
    copy.write_text(SNIPPETS[0].replace("-r *", "-2 * r *"), encoding="utf-8")
    text = str(folder / "text.en")
    changed = command(tmp_path, "translate", str(folder / "other"), text, status=1)
    assert "has changed since this model was trained" in changed
    (folder / "other" / "kinds.json").unlink()
    command(tmp_path, "translate", str(folder / "other"), text)
