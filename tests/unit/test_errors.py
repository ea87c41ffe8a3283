"""The error that a user can fix."""

from __future__ import annotations

from pathlib import Path

from shapeshift.errors import ShapeshiftError, nearest


def test_the_message_starts_with_the_place() -> None:
    assert str(ShapeshiftError("no such key")) == "no such key"
    assert str(ShapeshiftError("no such key", path="run.yaml")) == "run.yaml: no such key"
    error = ShapeshiftError("no such key", path=Path("a/run.yaml"), line=3)
    assert str(error) == "a/run.yaml:3: no such key"
    assert (error.path, error.line) == (Path("a/run.yaml"), 3)


def test_nearest_word() -> None:
    assert nearest("maxupdates", ["max_updates", "seed"]) == "; did you mean 'max_updates'?"
    assert nearest("zzz", ["max_updates", "seed"]) == ""
    assert nearest("seed", iter([])) == ""


def test_a_value_of_any_length_leaves_a_message_that_can_be_read():
    error = ShapeshiftError(f"unknown preset {9999 * 'x'!r} (known: ape)", path="run.yaml")
    assert str(error).endswith("x… (known: ape)")
    assert len(str(error)) < 200
    assert len(str(ShapeshiftError("no such file", path="y" * 5000))) < 200
