"""`shapeshift positions`: every cell, with what it costs and what it exports to."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shapeshift.cli import app
from shapeshift.model import catalogue
from shapeshift.positions import KINDS, PRESETS

CONTRACT = Path(__file__).parents[2] / "contract"


def cells(text: str) -> list[list[str]]:
    """Return the rows of the printed table whose last column is "exports to"."""
    lines = text[text.index("exports to") :].splitlines()
    rows = [[word.strip() for word in line.split("│")[1:-1]] for line in lines]
    return [row for row in rows if len(row) == 5 and row[0] in KINDS]


def test_every_cell_says_what_it_exports_to() -> None:
    result = CliRunner().invoke(app, ["positions"])
    assert result.exit_code == 0
    assert "exports to" in result.output
    shown = cells(result.output)
    wanted = {(kind, at) for kind, entry in KINDS.items() for at in entry.build.places}
    assert {(kind, at) for kind, at, *_ in shown} == wanted
    assert {row[4] for row in shown} == {"torch.compile, torch.export"}


def test_each_target_has_a_contract_test_over_all_cells() -> None:
    for target in catalogue.EXPORTS:
        source = (CONTRACT / f"test_{target.removeprefix('torch.')}.py").read_text("utf-8")
        assert "compiled_scheme" in source


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
