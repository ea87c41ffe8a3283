"""The tidy table: gathered, written, read back."""

import csv
from dataclasses import replace

import pytest

from shapeshift.config import parse_config
from shapeshift.run.measures import Measurement
from shapeshift.run.record import CellFolder
from shapeshift.study.grid import Cell
from shapeshift.study.results import collect, write_csv

from ..conftest import write_step


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
        write_step(folder, config, step, found)
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
    write_csv(rows, path / "r.csv")
    with (path / "r.csv").open(encoding="utf-8", newline="") as file:
        read = [*csv.DictReader(file, strict=True)]
    assert [(x["axis:position"], float(x["value"]), x["bucket"]) for x in read] == [
        ("ape", 1.5, ""), ("ape", 2.5, "0–9"), ("sines", 1.5, ""), ("sines", 2.5, "0–9")
    ]  # fmt: skip
    trained = [replace(cell, steps=()) for cell in cells]
    assert [row.measure for row in collect(trained, path)] == ["train", "train"]
