"""What stands around the code: workflows, the version, lock files."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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


LOCKS = {"requirements.lock": "dev", "requirements-testbed.lock": "testbed"}
"""File → the extra that it is for."""


def pins(file: str) -> list[tuple[str, str, str]]:
    """Return name, version and what asks for it, of each package that has a hash."""
    return re.findall(
        r"^(\S+)==(\S+).*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+\n +# via (.*)$",
        (ROOT / file).read_text(encoding="utf-8"),
        re.MULTILINE,
    )


def asked_for(extra: str) -> set[tuple[str, SpecifierSet]]:
    """Return the requirements of the package with an extra, by name."""
    project, found = PYPROJECT["project"], set()
    todo = [*project["dependencies"], f"shapeshift[{extra}]"]
    while todo:
        asked = Requirement(todo.pop())
        if asked.name == "shapeshift":
            extras = (project["optional-dependencies"][name] for name in asked.extras)
            todo += [line for lines in extras for line in lines]
        else:
            found.add((asked.name.lower().replace("_", "-"), asked.specifier))
    return found


@pytest.mark.parametrize(("file", "extra"), LOCKS.items())
def test_a_lock_file_holds_what_the_package_asks_for_and_nothing_else(
    file: str, extra: str
) -> None:
    """All by hash, except torch."""
    direct = {name: version for name, version, via in pins(file) if "(pyproject.toml)" in via}
    assert {"torch", *direct} == {name for name, _ in asked_for(extra)}
    for name, specifier in asked_for(extra):
        assert name == "torch" or direct[name] in specifier, name
    names = {name for name, *_ in pins(file)} | {"shapeshift", "torch"}
    for name, _, via in pins(file):  # what asks for it is in it
        asking = {each for each in via.split(", ") if not each.startswith("-c ")}
        assert {re.sub(r" \(.*| *\[.*", "", each) for each in asking} <= names, name


def test_both_lock_files_have_the_same_versions() -> None:
    all_pins, some = (dict(pin[:2] for pin in pins(file)) for file in LOCKS)
    assert some.items() <= all_pins.items()


def test_only_pictures_archives_and_weights_of_tests_are_binary() -> None:
    """No wheel, archive or library is committed by mistake."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone of the repository")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert len(files) > 500
    binary = {path for path in files if b"\0" in (ROOT / path).read_bytes()[:8192]}
    assert {
        path
        for path in binary
        if (path.parts[0], path.suffix)
        not in {("docs", ".png"), ("docs", ".xz"), ("tests", ".safetensors")}
    } == set()
