"""The error that a user can fix."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import shapeshift
from shapeshift._system import errors
from shapeshift._system.errors import ShapeshiftError, install_extra, nearest, out_of_memory, reason


def test_the_message_starts_with_the_place_and_is_short() -> None:
    error = ShapeshiftError("no such key", path=Path("a/run.yaml"), line=3)
    assert str(error) == "a/run.yaml:3: no such key"
    assert (error.path, error.line) == (Path("a/run.yaml"), 3)
    error = ShapeshiftError(f"unknown scheme {9999 * 'x'!r} (known: ape)", path="y" * 5000)
    assert str(error).endswith("x… (known: ape)")
    assert len(str(error)) < 300


def test_nearest_word() -> None:
    assert nearest("maxupdates", ["max_updates", "seed"]) == "; did you mean 'max_updates'?"
    assert nearest("zzz", iter(["max_updates", "seed"])) == ""
    assert nearest("SEED", ["max_updates", "Seed"]) == "; did you mean 'Seed'?"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("one\n  two", "one two"),
        ("", "Exception"),
        (f"{100 * 'a'} b. C {100 * 'd'}", f"{100 * 'a'} b"),
        (41 * "word ", 40 * "word " + "…"),
        (41 * "words ", 33 * "words " + "…"),
        (300 * "x", 200 * "x" + " …"),
    ],
)
def test_a_long_reason_ends_at_a_sentence_or_a_word(message: str, shown: str) -> None:
    assert reason(Exception(message)) == shown
    assert reason(KeyError("foo")) == "KeyError: 'foo'"  # a key alone is no reason


def test_an_extra_is_added_to_the_checkout_or_to_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = Path(shapeshift.__file__).parents[2]
    assert install_extra("hf").endswith(f"(pip install '.[hf]' in {checkout})")
    installed = tmp_path / "site-packages" / "shapeshift" / "_system" / "errors.py"
    monkeypatch.setattr(errors, "__file__", str(installed))
    assert install_extra("hf").endswith("(pip install 'shapeshift[hf]')")


def test_an_extra_that_a_message_or_a_page_names_is_one_that_there_is() -> None:
    root = Path(shapeshift.__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].keys()
    source = "".join(path.read_text("utf-8") for path in (root / "src").rglob("*.py"))
    in_messages = set(re.findall(r"(?:install_extra|require)\([\"'](\w+)[\"']", source))
    assert set() != in_messages <= extras
    readme = (root / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", readme.partition("other extras")[2].partition("\n\n")[0]))
    assert listed == extras - {"testbed", "dev", "browser"}
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "Makefile"):
        text = page.read_text(encoding="utf-8")
        lists = re.findall(r"\.\[([\w,]+)\]'", text) + re.findall(r"[Ee]xtra `(\w+)`", text)
        assert {name for each in lists for name in each.split(",")} <= extras, page


OF_A_LIBRARY = RuntimeError("of another library")
OF_A_LIBRARY.__cause__ = MemoryError("std::bad_alloc")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("could not create a primitive"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OF_A_LIBRARY,
    ],
)
def test_a_lack_of_memory_is_known_whoever_says_so(error: BaseException) -> None:
    lack = out_of_memory(error)
    assert str(lack).startswith("out of memory (")
    assert "ulimit" in str(lack)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ImportError("no module"), OSError(2, "")])
def test_other_errors_are_not_a_lack_of_memory(error: BaseException) -> None:
    assert out_of_memory(error) is None
