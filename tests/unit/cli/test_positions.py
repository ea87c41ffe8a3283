"""`shapeshift positions`: every cell, with what it costs and what it exports to."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from shapeshift.cli import app
from shapeshift.cli.output import plain_console, show_table
from shapeshift.evaluation.tables import Table
from shapeshift.model import catalogue
from shapeshift.positions import KINDS, PRESETS


@pytest.fixture(scope="module", autouse=True)
def _counted_once():
    """The cells, whose parameters take a while to count."""
    counted = [*catalogue.cells()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "cells", lambda: counted)
        yield


def cells(text: str) -> list[list[str]]:
    """Return the rows of the printed table whose last column is "exports to"."""
    lines = text[text.index("exports to") :].splitlines()
    rows = [re.split(" {2,}", line.strip()) for line in lines]
    return [row for row in rows if len(row) == 5 and row[0] in KINDS]


def test_every_cell_says_what_it_exports_to() -> None:
    result = CliRunner().invoke(app, ["positions"])
    assert result.exit_code == 0
    assert "exports to" in result.output
    shown = cells(result.output)
    wanted = {(kind, at) for kind, entry in KINDS.items() for at in entry.build.places}
    assert {(kind, at) for kind, at, *_ in shown} == wanted
    assert {row[4] for row in shown} == {"torch.compile, torch.export"}


def test_80_columns_cut_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapeshift.cli.positions.results_console", lambda: plain_console(width=80))
    result = CliRunner().invoke(app, ["positions"])
    options = {name for entry in KINDS.values() for name in entry.options()}
    words = set(re.split(r"[\s,]+", result.output))
    assert {*PRESETS, *KINDS, *options} <= words
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_table_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Table(("x", "[bold]"), [("row", "[red]1")], ["a [note]"]))
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("[bold]", "[red]1", "a [note]"))


@pytest.mark.parametrize("name", [*PRESETS, *KINDS])
def test_one_is_described_with_its_options_and_its_use(name: str) -> None:
    result = CliRunner().invoke(app, ["positions", name])
    assert result.exit_code == 0
    assert f"position: {name}" in result.output or f"kind: {name}" in result.output
    assert "parameters added" in result.output
    kinds = {part.kind for part in PRESETS[name].parts} if name in PRESETS else {name}
    for kind in kinds:
        assert all(f"{option}=" in result.output for option in KINDS[kind].options())


def test_a_slip_is_answered_with_the_nearest_name() -> None:
    result = CliRunner().invoke(app, ["positions", "rop"])
    assert "did you mean 'rope'" in str(result.exception)
