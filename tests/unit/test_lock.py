"""Lock files: what pyproject.toml asks for, except torch, and nothing else; all by hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = {"requirements.lock": "dev", "requirements-testbed.lock": "testbed"}
"""File → the extra that it is for."""


def pins(file):
    """Return name, version and what asks for it, of each package that has a hash."""
    return re.findall(
        r"^(\S+)==(\S+).*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+\n +# via (.*)$",
        (ROOT / file).read_text(encoding="utf-8"),
        re.MULTILINE,
    )


def asked_for(extra):
    """Return the requirements of the package with an extra, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists, todo = [project["dependencies"]], [extra]
    while todo:
        extra = project["optional-dependencies"][todo.pop()]
        lists.append([line for line in extra if not line.startswith("shapeshift[")])
        todo += [
            name for line in extra if line not in lists[-1] for name in Requirement(line).extras
        ]
    every = [Requirement(line) for lines in lists for line in lines]
    return {(each.name.lower().replace("_", "-"), each.specifier) for each in every}


@pytest.mark.parametrize(("file", "extra"), LOCKS.items())
def test_it_holds_what_the_package_asks_for_and_nothing_else(file, extra):
    direct = {name: version for name, version, via in pins(file) if "(pyproject.toml)" in via}
    assert {"torch", *direct} == {name for name, _ in asked_for(extra)}
    for name, specifier in asked_for(extra):
        assert name == "torch" or direct[name] in specifier, name
    names = {name for name, *_ in pins(file)} | {"shapeshift", "torch"}
    for name, _, via in pins(file):  # what asks for it is in it
        asking = {each for each in via.split(", ") if not each.startswith("-c ")}
        assert {re.sub(r" \(.*| *\[.*", "", each) for each in asking} <= names, name


def test_both_have_the_same_versions():
    all_pins, some = (dict(pin[:2] for pin in pins(file)) for file in LOCKS)
    assert some.items() <= all_pins.items()
