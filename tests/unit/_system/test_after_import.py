"""Code that runs once another package is imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from shapeshift._system.after_import import after_import


def test_an_action_runs_once_after_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    finders, seen = sys.meta_path[:], []

    def act() -> None:
        seen.append(sys.modules["imported_late"].value)

    after_import("imported_late", act)
    after_import("imported_late", act)  # as a second user of it
    importlib.import_module("json")
    assert importlib.util.find_spec("imported_late") is not None
    assert seen == []
    module = importlib.import_module("imported_late")
    assert seen == [1, 1]
    assert sys.meta_path == finders
    importlib.reload(module)
    after_import("imported_late", act)  # at once
    assert seen == [1, 1, 1]


def test_a_module_that_is_not_there_is_still_an_import_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    after_import("shapeshift_has_no_such_module", lambda: pytest.fail("it was not imported"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("shapeshift_has_no_such_module")
