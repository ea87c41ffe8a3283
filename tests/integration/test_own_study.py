"""A study of one's own: the file that docs/tutorials/own-study.md shows, in one command."""

import csv
import re
from pathlib import Path

import pytest

from shapeshift.study.document import StudyDocument

from ..unit.cli.running import shapeshift
from .conftest import MINE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the study, whose runs are finished."""
    text = (DOCS / "tutorials" / "own-study.md").read_text(encoding="utf-8")
    [study] = re.findall(r"```yaml\n(title: Positions on my text\n.*?)```", text, re.DOTALL)
    assert len(study.splitlines()) <= 25
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(study, encoding="utf-8")
    (folder / "mine.yaml").write_text(MINE, encoding="utf-8")
    status, _, err = shapeshift(folder, "reproduce", "study.yaml", "--jobs", "0")
    assert status == 0, err
    return folder


def test_it_gets_a_table_with_tests_a_figure_and_a_page(folder):
    study = folder / "reproduced" / "full" / "studies" / "study"
    document = StudyDocument.load(study / "study.json")
    table, by_length = document.tables
    assert (table.name, by_length.name) == ("study", "study-2")
    assert by_length.header == ("source length", "segments", "ape", "shape", "rpe")
    assert all(table.figure for table in document.tables)
    assert [row[0].text for row in table.rows] == ["ape", "shape", "rpe"]
    assert all(entry.value is not None for row in table.rows for entry in row[1:])
    assert any("paired bootstrap" in note for note in table.notes)
    assert "3 seeds" in document.findings[0].measured
    assert (study / "study-2.png").stat().st_size > 1000
    with (folder / "reproduced" / "full" / "studies" / "study" / "results.csv").open() as file:
        assert {row["axis:position"] for row in csv.DictReader(file)} == {"ape", "shape", "rpe"}
    page = (folder / "reproduced" / "report.html").read_text(encoding="utf-8")
    assert "Positions on my text" in page
    assert "SHAPE translates better than APE." in page


def test_its_measurements_are_read_as_the_page_says(folder, monkeypatch, capsys):
    text = (DOCS / "tutorials" / "own-study.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(folder)
    exec(code)
    assert "shape" in capsys.readouterr().out
