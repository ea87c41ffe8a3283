"""What stands around the code: workflows, the version, the files of the house."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import shapeshift
from shapeshift.config.yaml_file import parse_yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile(path: Path) -> None:
    jobs = parse_yaml(path.read_text(encoding="utf-8").replace("\non:", "\nwhen:"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        target = re.fullmatch(r"make ([a-z-]+)( PYTHON=python)?", command)
        assert target is not None, command
        assert f"\n{target[1]}:" in MAKEFILE, command


def test_the_pythons_that_are_tested_are_those_of_pyproject() -> None:
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    tested = {*re.findall(r'"(3\.\d+)"', text)}
    said = re.findall(r"Python :: (3\.\d+)", " ".join(PYPROJECT["project"]["classifiers"]))
    assert tested == {*said}
    assert PYPROJECT["project"]["requires-python"] == f">={said[0]}"


def test_the_version_stands_in_one_place() -> None:
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "shapeshift.__version__"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {shapeshift.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE)[1] == shapeshift.__version__  # type: ignore[index]


def test_the_tests_of_the_library_alone_exist() -> None:
    named = re.search(r"^LIBRARY := (.*?)\n\n", MAKEFILE, re.MULTILINE | re.DOTALL)
    assert named is not None
    folder, *files = re.findall(r"[\w/]+/\w+(?:\.py)?", named[1].replace("tests/unit/,", ""))
    assert (ROOT / folder).is_dir()
    assert files
    assert [name for name in files if not (ROOT / "tests" / "unit" / name).is_file()] == []
