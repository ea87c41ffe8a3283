"""Modules of the user's own: where they are looked for, and what is said of missing ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.positions import get, registry
from shapeshift.run.identity import run_key
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import Grid

KIND = """
import torch
from shapeshift.positions import Representation

class Root(Representation):
    "One penalty."
    places = ("self",)
    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = scale
    def bias(self, pos_q, pos_k, *, dtype):
        return -self.scale * (pos_k[:, None, None, :] - pos_q[:, None, :, None]).abs().to(dtype)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the module `own_root`, which is forgotten afterwards."""
    (tmp_path / "own_root.py").write_text(KIND)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(registry, "_own", {})
    own_modules._source.cache_clear()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("own_root", "sub"))]:
        if str(tmp_path) in str(sys.modules[name].__spec__):
            del sys.modules[name]


def _position(kind: str, **options: object) -> dict[str, object]:
    return {"position": {"name": "mine", "parts": [{"kind": kind, **options}]}}


def test_a_kind_is_found_in_the_current_folder_and_its_options_are_checked(folder: Path) -> None:
    assert get("own_root:Root", scale=2.0).scale == 2.0
    config = parse_config(_position("own_root:Root", scale=3.0))
    assert config.position.scheme.parts[0].at == "self"
    with pytest.raises(ShapeshiftError, match="has no option 'scal'; did you mean 'scale'"):
        parse_config(_position("own_root:Root", scal=3.0))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "own_rot:Root",
            r"no kind 'own_rot:Root': there is no module 'own_rot' .* in .*PYTHONPATH",
        ),
        ("own_root:Rot", r"own_root\.py has no 'Rot'"),
        ("own_root:torch", "expected a subclass of .*Representation"),
        ("own_root:", "expected package.module:name"),
        ("../own_root:Root", "expected package.module:name"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, kind: str, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        parse_config(_position(kind))


def test_all_missing_kinds_are_named_at_once(folder: Path) -> None:
    settings = {
        name: [f"position={{name: mine, parts: [{{kind: {name}:Root}}, {{kind: also_{name}:X}}]}}"]
        for name in ("gone", "lost")
    }
    (folder / "grid.yaml").write_text(f"axes: {{x: {settings}}}")
    with pytest.raises(ShapeshiftError) as error:
        Grid(folder / "grid.yaml").runs("full")
    for name in ("gone:Root", "also_gone:X", "lost:Root", "also_lost:X"):
        assert f"no kind '{name}'" in str(error.value)


def test_the_current_folder_hides_no_module(folder: Path) -> None:
    (folder / "colorsys.py").write_text("raise SystemExit")
    sys.modules.pop("colorsys", None)
    assert own_modules.find("colorsys:rgb_to_hsv", "measure")(0, 0, 0) == (0.0, 0.0, 0)


@pytest.mark.parametrize("name", ["own_root:Root", "sub.inner:Root", "sub.package.inner:Root"])
def test_a_folder_that_names_a_module_does_not_bring_it(folder: Path, name: str) -> None:
    for place in (folder / "sub", folder / "sub" / "package"):
        place.mkdir()
        (place / "inner.py").write_text("raise SystemExit('run')")
    (folder / "sub" / "package" / "__init__.py").write_text("raise SystemExit('run')")
    untrusted = folder if name.startswith("own") else folder / "sub"
    with (
        own_modules.outside(untrusted),
        pytest.raises(ShapeshiftError, match="whose code is not run"),
    ):
        own_modules.find(name, "kind")


def test_an_installed_package_brings_kinds_by_entry_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("root_distance", "own_root:Root", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]))
    assert type(get("root_distance")).__name__ == "Root"
    parse_config(_position("root_distance"))
    with pytest.raises(ShapeshiftError, match="did you mean 'root_distance'"):
        parse_config(_position("root_distanc"))


def test_the_source_of_a_module_is_the_one_that_was_imported(folder: Path) -> None:
    own_modules.find("own_root:Root", "kind")
    (folder / "own_root.py").write_text(KIND + "# changed")
    imported = own_modules.source_sha256("own_root:Root", "kind")
    own_modules._source.cache_clear()
    assert imported != own_modules.source_sha256("own_root:Root", "kind")


def test_a_run_is_named_by_the_source_of_its_kind(folder: Path) -> None:
    key = run_key(parse_config(_position("own_root:Root")))
    assert key == run_key(parse_config(_position("own_root:Root", scale=1.0)))
    (folder / "own_root.py").write_text(KIND.replace("-self", "-2 * self"))
    own_modules._source.cache_clear()
    assert run_key(parse_config(_position("own_root:Root"))) != key


def test_a_measure_that_changed_is_another_one(folder: Path) -> None:
    config = parse_config({})
    path = RunFolder(folder).record_path("own_root:Root", config)
    assert path == RunFolder(folder).record_path("own_root:Root", config)
    (folder / "own_root.py").write_text(KIND + "# changed")
    own_modules._source.cache_clear()
    assert RunFolder(folder).record_path("own_root:Root", config) != path
    own = own_modules.find("own_root:Root", "kind")
    assert own_modules.definition_sha256(own) != own_modules.definition_sha256(partial(json.dumps))
    assert own_modules.definition_sha256(get) is None
