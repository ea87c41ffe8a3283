"""`shapeshift positions`: what there is, and one of them described."""

from __future__ import annotations

import re

import pytest
import yaml
from typer.testing import CliRunner

from shapeshift.cli import app
from shapeshift.cli.output import plain_console, show_table
from shapeshift.cli.positions import PURPOSE
from shapeshift.config import parse_config
from shapeshift.evaluation.tables import Table
from shapeshift.positions import KINDS, POSITION_IDS, PRESETS


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapeshift.cli.output.results_console", lambda: plain_console(width=80))


def test_80_columns_cut_no_name() -> None:
    result = CliRunner().invoke(app, ["positions"])
    words = set(re.split(r"[\s,]+", result.output))
    assert {*PRESETS, *KINDS, *POSITION_IDS} <= words
    assert {place for entry in KINDS.values() for place in entry.build.places} <= words
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_table_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Table(("x", "[bold]"), [("row", "[red]1")], ["a [note]"]))
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("[bold]", "[red]1", "a [note]"))


def test_each_has_advice() -> None:
    assert set(PURPOSE) == {*KINDS, *POSITION_IDS}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("rotary_pos_emb", "did you mean 'rope'?"),
        ("NoPos", "did you mean 'nope'?"),
        ("xyzzy", "`shapeshift positions` lists all"),
    ],
)
def test_a_foreign_name_is_answered(name: str, answer: str) -> None:
    error = CliRunner().invoke(app, ["positions", name]).exception
    assert str(error) == f"no preset or kind {name!r}; {answer}"


@pytest.mark.parametrize("name", [*PRESETS, *KINDS, *POSITION_IDS])
def test_one_is_described_with_its_options_and_its_use(name: str) -> None:
    result = CliRunner().invoke(app, ["positions", name])
    assert result.exit_code == 0
    usage = result.output.partition("in a configuration: ")[2]
    position = parse_config(yaml.safe_load(usage.partition("\nhow")[0])).position
    assert name in (
        position.name,
        *(part.kind for part in position.scheme.parts),
        position.scheme.position_ids.name,
    )
    assert "parameters added to transformer-base: " in result.output
    assert re.search("[Cc]hoose it ", result.output)
    engines = "exports to torch.compile, torch.export, Hugging Face, ONNX; CTranslate2: "
    assert engines in " ".join(result.output.split())
    described = [KINDS[part.kind] for part in position.scheme.parts]
    if name in POSITION_IDS:
        described = [POSITION_IDS[name]]
    words = set(re.split(r"[\s=,]+", result.output))
    assert all(entry.options().keys() <= words for entry in described)
