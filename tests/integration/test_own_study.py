"""A study of one's own: the file that docs/tutorials/own-study.md shows, in one command."""

import csv
import re
from pathlib import Path

import pytest

from shapeshift.study.document import StudyDocument

from ..unit.cli.running import python, shapeshift
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
    [code] = re.findall(r"^```python\n(import pandas.*?)^```", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(folder)
    exec(code)
    assert "shape" in capsys.readouterr().out


PAPER = """\
title: Words
citation: nobody 2026
studies: [right, lengths]
"""

RIGHT = """\
title: Words in their place
grid:
  base: mine.yaml
  axes: {position: {ape: [position=ape], nope: [position=nope]}}
  seeds: [1, 2, 3]
  measures: [score-test, "my_measures:words"]
tables:
  - title: Words
    rows: [position]
    columns:
      accuracy: {metric: accuracy, split: test}
      beyond: {metric: accuracy, split: test, lengths: beyond}
      error: {metric: length error, split: test}
      gain: {gain_of: accuracy}
    baseline: {position: ape}
    plot: {title: Accuracy, x: position, y: accuracy}
by_length:
  - {title: Accuracy by length, lines: position, metric: accuracy, tested: true}
claims:
  - {claim: No order is right more often., rule: better, metric: accuracy,
     test: {position: nope}, against: {position: ape}}
  - {claim: No order errs less., rule: better, metric: length error,
     test: {position: nope}, against: {position: ape}}
"""

LENGTHS = """\
title: Lengths
grid: right
tables: [{title: Errors, rows: [position], columns: {error: {metric: length error, split: test}}}]
"""


def test_a_paper_of_ones_own_has_metrics_of_its_own_with_tests_claims_and_figures(tmp_path):
    """All workers are processes of their own, which import the measure."""
    text = (DOCS / "tutorials" / "own-study.md").read_text(encoding="utf-8")
    [measure] = re.findall(r"^```python\n(from statistics.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "my_measures.py").write_text(measure, encoding="utf-8")
    (tmp_path / "words").mkdir()
    files = {"paper": PAPER, "right": RIGHT, "lengths": LENGTHS, "mine": MINE}
    for name, content in files.items():
        (tmp_path / "words" / f"{name}.yaml").write_text(content, encoding="utf-8")
    command = ("-P", "-m", "shapeshift", "reproduce", "words", "--jobs", "2")
    done = python(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = tmp_path / "reproduced" / "full" / "words"
    document = StudyDocument.load(written / "right" / "study.json")
    table, by_length = document.tables
    rows = {row[0].text: dict(zip(table.header, row, strict=True)) for row in table.rows}
    own, base = (rows[name]["accuracy"].value for name in ("nope", "ape"))
    assert rows["nope"]["gain"].value == pytest.approx(own - base)
    assert all(0 <= rows["nope"][title].p_value <= 1 for title in ("accuracy", "beyond", "error"))
    assert (table.figure, by_length.figure) != ("", "")
    assert by_length.header == ("source length", "segments", "ape", "nope")
    right, errs = document.findings
    assert {"not run", "one run"}.isdisjoint({right.verdict, errs.verdict})
    assert (written / "lengths" / "lengths.md").is_file()
    page = (tmp_path / "reproduced" / "report.html").read_text(encoding="utf-8")
    assert ">Words</h2>" in page

    with (written / "right" / "results.csv").open() as file:
        before = [row["time"] for row in csv.DictReader(file) if row["metric"] == "accuracy"]
    (tmp_path / "my_measures.py").write_text(measure + "\n# edited\n", encoding="utf-8")
    done = python(*command, "--seed", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (written / "right" / "results.csv").open() as file:
        after = [row["time"] for row in csv.DictReader(file) if row["metric"] == "accuracy"]
    assert len(after) == 2
    assert not {*after} & {*before}
