"""requirements.lock: what pyproject.toml asks for, except torch, and nothing else; all by hash."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINS = re.findall(
    r"^(\S+)==(\S+).*((?:\n    --hash=sha256:[0-9a-f]{64}.*)+)\n +# via (.*)$",
    (ROOT / "requirements.lock").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def asked_for():
    """Return the requirements of the package with its extra `dev`, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists, todo = [project["dependencies"]], ["dev"]
    while todo:
        extra = project["optional-dependencies"][todo.pop()]
        lists.append([line for line in extra if not line.startswith("shapeshift[")])
        todo += [
            name for line in extra if line not in lists[-1] for name in Requirement(line).extras
        ]
    every = [Requirement(line) for lines in lists for line in lines]
    return {(each.name.lower().replace("_", "-"), each.specifier) for each in every}


def test_every_pin_has_a_hash_and_no_place():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line[:1].isalnum()]
    assert len(lines) == len(PINS) > 50
    assert "://" not in text
    assert "torch" not in {name for name, *_ in PINS}  # its files differ by package index


def test_it_holds_what_the_package_asks_for_and_nothing_else():
    direct = {name: version for name, version, _, via in PINS if "(pyproject.toml)" in via}
    assert {"torch", *direct} == {name for name, _ in asked_for()}
    for name, specifier in asked_for():
        assert name == "torch" or direct[name] in specifier, name
    names = {name for name, *_ in PINS} | {"shapeshift", "torch"}
    for name, _, _, via in PINS:  # what asks for it is in it
        assert {re.sub(r" \(.*| *\[.*", "", each) for each in via.split(", ")} <= names, name
