"""A study of one's own: the files that docs/tutorials/own-study.md shows, in one command."""

import pytest

from shapeshift.study.document import StudyDocument

from ..pages import blocks
from ..unit.cli.running import python, shapeshift
from .conftest import MINE


def block(start):
    """Return the block of the page that begins with this."""
    shown = blocks("docs/tutorials/own-study.md", "yaml", "python")
    [found] = [each for each in shown if each.startswith(start)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the study, whose runs are finished."""
    study = block("title: Positions on my text")
    assert len(study.splitlines()) <= 25
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(study, encoding="utf-8")
    (folder / "mine.yaml").write_text(MINE, encoding="utf-8")
    status, _, err = shapeshift(folder, "reproduce", "study.yaml", "--jobs", "0")
    assert status == 0, err
    return folder


def test_it_gets_a_table_with_tests_a_figure_and_a_page(folder, monkeypatch, capsys):
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
    page = (folder / "reproduced" / "report.html").read_text(encoding="utf-8")
    assert "Positions on my text" in page
    assert "SHAPE translates better than APE." in page
    monkeypatch.chdir(folder)
    exec(block("import pandas"))  # reads its measurements
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("ape", "shape", "rpe"))


WORDS = """\
title: Words in their place
grid:
  base: mine.yaml
  axes: {position: {ape: [position=ape], shape: [position=shape]}}
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
  - {claim: SHAPE is right more often., rule: better, metric: accuracy,
     test: {position: shape}, against: {position: ape}}
  - {claim: SHAPE errs less., rule: better, metric: length error,
     test: {position: shape}, against: {position: ape}}
"""


@pytest.mark.slow
def test_metrics_of_ones_own_have_tests_claims_and_figures(folder):
    """Workers are processes of their own, which import the measure; they find the runs trained."""
    (folder / "my_measures.py").write_text(block("from statistics"), encoding="utf-8")
    (folder / "words.yaml").write_text(WORDS, encoding="utf-8")
    logs = {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}
    done = python("-P", "-m", "shapeshift", "reproduce", "words.yaml", "--jobs", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert logs == {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}
    document = StudyDocument.load(folder / "reproduced/full/studies/words/study.json")
    table, by_length = document.tables
    rows = {row[0].text: dict(zip(table.header, row, strict=True)) for row in table.rows}
    own, base = (rows[name]["accuracy"].value for name in ("shape", "ape"))
    assert rows["shape"]["gain"].value == pytest.approx(own - base)
    assert all(0 <= rows["shape"][title].p_value <= 1 for title in ("accuracy", "beyond", "error"))
    assert (table.figure, by_length.figure) != ("", "")
    assert by_length.header == ("source length", "segments", "ape", "shape")
    right, errs = document.findings
    assert {"not run", "one run"}.isdisjoint({right.verdict, errs.verdict})
