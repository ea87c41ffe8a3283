"""The tidy table: gathered, written, read back."""

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shapeshift.config import parse_config
from shapeshift.lab.cell_folder import CellFolder, StepRecord
from shapeshift.lab.grid import Cell
from shapeshift.lab.measures import Measurement
from shapeshift.lab.results import Row, collect, csv_text, write_csv

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
MAYBE = st.none() | TEXT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


# Training has the processor flush subnormal numbers, in the process of all tests.
NUMBER = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
ROW = st.builds(
    Row,
    metric=TEXT, value=NUMBER, dataset=MAYBE, bucket=MAYBE, step=st.none() | st.integers(0, 2**40),
    signature=MAYBE, hypotheses=MAYBE, references=MAYBE, grid=TEXT, scale=TEXT, cell=TEXT,
    axes=st.dictionaries(TEXT, TEXT, max_size=3), seed=st.integers(0, 2**40), measure=TEXT,
    checkpoint=TEXT, command=st.text(max_size=3), version=TEXT, time=TEXT,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, max_size=3))
@example(rows=[])
def test_reading_gives_what_was_written(folder, rows):
    write_csv(rows, folder / "r.csv")
    with (folder / "r.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file, strict=True))
    assert [float(row["value"]) for row in read] == [row.value for row in rows]
    for found, row in zip(read, rows, strict=True):
        assert found["metric"] in (row.metric, f"'{row.metric}")


@pytest.fixture
def root(tmp_path):
    """Two cells of one key, one of which is trained and measured, and one that is not begun."""
    config = parse_config({"model": {"size": "tiny"}})
    steps = ("score-valid", "score-test")
    cells = [Cell("mine", "tiny", {"position": x}, 1, config, steps) for x in ("ape", "sines")]
    cells.append(
        Cell("mine", "tiny", {"position": "late"}, 2, parse_config({}, ["training.seed=2"]))
    )
    folder = CellFolder(tmp_path / cells[0].key)
    for step, bleu in (("train", 1.5), ("score-test", 2.5)):
        found = Measurement(metric="BLEU", value=bleu, bucket="0–9" if bleu > 2 else None)
        record = StepRecord(
            step=step, version="1", command="make it", time="2026-11-20T10:00:00+00:00",
            elapsed_s=1.0, checkpoint="abc", text="def", measurements=(found,),
        )  # fmt: skip
        folder.write_record(record, config)
    return cells, tmp_path


def test_rows_say_where_they_are_from(root):
    cells, path = root
    rows = collect(cells, path)
    assert [(row.axes["position"], row.measure, row.value, row.bucket) for row in rows] == [
        ("ape", "train", 1.5, None), ("ape", "score-test", 2.5, "0–9"),
        ("sines", "train", 1.5, None), ("sines", "score-test", 2.5, "0–9"),
    ]  # fmt: skip
    first = rows[0]
    assert (first.grid, first.scale, first.seed, first.cell) == ("mine", "tiny", 1, cells[0].key)
    assert (first.command, first.checkpoint, first.version) == ("make it", "abc", "1")
    trained = [replace(cell, steps=()) for cell in cells]
    assert [row.measure for row in collect(trained, path)] == ["train", "train"]


def test_text_that_a_spreadsheet_would_run_is_escaped():
    formulas = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\t=1", "\r=1"]
    plain = ["-1.5", "+3", "a=b", "'quoted'", "", "–"]
    [found] = csv.reader(io.StringIO(csv_text([[*formulas, *plain, -2, None]]), newline=""))
    assert found == [*(f"'{text}" for text in formulas), *plain, "-2", ""]
