"""The tidy table: gathered, written, read back."""

import csv
import io
from dataclasses import replace

from shapeshift.config import parse_config
from shapeshift.study.grid import PlannedRun
from shapeshift.study.results import collect, csv_text, tabulate

from .conftest import record_measure, result


def test_rows_say_where_they_are_from(tmp_path):
    """Of two runs of one key, which is trained and measured, and one that is not begun."""
    config, late = parse_config({"model": {"size": "tiny"}}), parse_config({}, ["training.seed=2"])
    own = {"measures": ("score-valid", "score-test")}
    runs = [PlannedRun("mine", "tiny", {"position": x}, 1, config, **own) for x in ("ape", "sines")]
    runs.append(PlannedRun("mine", "tiny", {"position": "late"}, 2, late))
    for measure, bleu, bucket in (("train", 1.5, None), ("score-test", 2.5, "0–9")):
        found = [result("BLEU", bleu, bucket=bucket)]
        record_measure(tmp_path / runs[0].key, config, measure, found)
    rows = collect(runs, tmp_path)
    assert [(row.axes["position"], row.measure, row.value, row.bucket) for row in rows] == [
        ("ape", "train", 1.5, None), ("ape", "score-test", 2.5, "0–9"),
        ("sines", "train", 1.5, None), ("sines", "score-test", 2.5, "0–9"),
    ]  # fmt: skip
    first = rows[0]
    assert (first.grid, first.profile, first.seed, first.run) == ("mine", "tiny", 1, runs[0].key)
    assert (first.command, first.checkpoint, first.version) == ("x", "c", "0")
    text = io.StringIO(csv_text(tabulate(rows)), newline="")
    read = [*csv.DictReader(text, strict=True)]
    assert "examples" not in read[0]  # each has a file
    assert [(x["axis:position"], float(x["value"]), x["bucket"]) for x in read] == [
        ("ape", 1.5, ""), ("ape", 2.5, "0–9"), ("sines", 1.5, ""), ("sines", 2.5, "0–9")
    ]  # fmt: skip
    trained = [replace(planned, measures=()) for planned in runs]
    assert [row.measure for row in collect(trained, tmp_path)] == ["train", "train"]
