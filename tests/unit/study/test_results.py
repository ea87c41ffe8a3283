"""The tidy table: gathered, written, read back."""

import csv
from dataclasses import replace

import pytest

from shapeshift.config import parse_config
from shapeshift.run.measures import Result
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.results import collect, write_csv

from ..conftest import write_step


@pytest.fixture
def root(tmp_path):
    """Two runs of one key, one of which is trained and measured, and one that is not begun."""
    config = parse_config({"model": {"size": "tiny"}})
    measures = ("score-valid", "score-test")
    runs = [
        PlannedRun("mine", "tiny", {"position": x}, 1, config, measures) for x in ("ape", "sines")
    ]
    runs.append(
        PlannedRun("mine", "tiny", {"position": "late"}, 2, parse_config({}, ["training.seed=2"]))
    )
    folder = RunFolder(tmp_path / runs[0].key)
    for measure, bleu in (("train", 1.5), ("score-test", 2.5)):
        found = Result(metric="BLEU", value=bleu, bucket="0–9" if bleu > 2 else None)
        write_step(folder, config, measure, found)
    return runs, tmp_path


def test_rows_say_where_they_are_from(root):
    runs, path = root
    rows = collect(runs, path)
    assert [(row.axes["position"], row.measure, row.value, row.bucket) for row in rows] == [
        ("ape", "train", 1.5, None), ("ape", "score-test", 2.5, "0–9"),
        ("sines", "train", 1.5, None), ("sines", "score-test", 2.5, "0–9"),
    ]  # fmt: skip
    first = rows[0]
    assert (first.grid, first.profile, first.seed, first.run) == ("mine", "tiny", 1, runs[0].key)
    assert (first.command, first.checkpoint, first.version) == ("make it", "abc", "1")
    write_csv(rows, path / "r.csv")
    with (path / "r.csv").open(encoding="utf-8", newline="") as file:
        read = [*csv.DictReader(file, strict=True)]
    assert "examples" not in read[0]  # each has a file
    assert [(x["axis:position"], float(x["value"]), x["bucket"]) for x in read] == [
        ("ape", 1.5, ""), ("ape", 2.5, "0–9"), ("sines", 1.5, ""), ("sines", 2.5, "0–9")
    ]  # fmt: skip
    trained = [replace(planned, measures=()) for planned in runs]
    assert [row.measure for row in collect(trained, path)] == ["train", "train"]
