"""From rows to the tables of the papers."""

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.pivot import pivot
from shapeshift.experiments.results import Results, Row


def row(data, position, seed, value, **more):
    given = {
        "metric": "BLEU", "dataset": "test", "signature": "s", "grid": "g", "scale": "tiny",
        "cell": "c", "measure": "m", "checkpoint": "c", "command": "", "version": "1", "time": "t",
        "axes": {"data": data, "position": position}, "seed": seed, "value": value, **more,
    }  # fmt: skip
    return Row(**given)


RESULTS = Results(
    (
        row("vanilla", "ape", 1, 10.0),
        row("vanilla", "ape", 2, 12.0),
        row("vanilla", "ape", 3, 20.0),
        row("vanilla", "rpe", 1, 11.0),
        row("extrapolate", "ape", 1, 5.0),
        row("extrapolate", "ape", 1, 50.0, dataset="valid"),
        row("extrapolate", "ape", 1, 4.0, bucket="0–9"),
        row("extrapolate", "ape", 1, 6.0, bucket="≥ 10"),
        row("extrapolate", "ape", 1, 2.0, metric="valid_loss", step=10, signature=None),
        row("extrapolate", "ape", 1, 1.0, metric="valid_loss", step=20, signature=None),
    )
)
TEST = {"dataset": "test"}


def test_settings_go_down_and_across_in_the_order_of_the_grid():
    table = pivot(RESULTS, "data", "position", "BLEU", "median", where=TEST)
    assert table.header == ("data", "ape", "rpe")
    assert table.rows == [("vanilla", "12.00", "11.00"), ("extrapolate", "5.00", "–")]
    assert table.notes == ["median over 1 to 3 seeds", "BLEU: s"]


@pytest.mark.parametrize(
    ("aggregate", "ape", "rpe"),
    [
        ("mean", "14.00", "11.00"),
        ("stdev", "5.29", "0.00"),
        ("mean ± stdev", "14.00 ± 5.29", "11.00"),
    ],
)
def test_seeds_are_aggregated(aggregate, ape, rpe):
    table = pivot(RESULTS, "data", "position", "BLEU", aggregate, where=TEST)
    assert table.rows[0] == ("vanilla", ape, rpe)


def test_several_names_make_one_label_and_marks_stand_behind_values():
    marks = {(("vanilla", "ape"), ("test",)): "*"}
    table = pivot(RESULTS, ["data", "position"], "dataset", "BLEU", marks=marks)
    assert table.header == ("data/position", "test", "valid")
    assert table.rows == [
        ("vanilla/ape", "14.00*", "–"), ("vanilla/rpe", "11.00", "–"),
        ("extrapolate/ape", "5.00", "50.00"),
    ]  # fmt: skip


def test_buckets_and_steps_are_there_when_they_are_named():
    buckets = pivot(RESULTS, "bucket", "position", "BLEU", where={**TEST, "data": "extrapolate"})
    assert buckets.rows == [("–", "5.00"), ("0–9", "4.00"), ("≥ 10", "6.00")]
    one = pivot(RESULTS, "data", "position", "BLEU", where={"bucket": "≥ 10"})
    assert one.rows == [("extrapolate", "6.00")]
    steps = pivot(RESULTS, "step", "metric", ["valid_loss"])
    assert steps.rows == [("10", "2.00"), ("20", "1.00")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "position", "BLEU"), "would mix dataset test and valid; name 'dataset' in rows"),
        (("data", "dataset", "BLEU"), "would mix position ape and rpe"),
        (("data", "positions", "BLEU"), "unknown column 'positions'; did you mean 'position'"),
        (("data", "position", "BLUE"), "no BLUE in the results; there are BLEU, valid_loss"),
        (("data", "position", "BLEU", "mode"), "unknown aggregate 'mode'"),
    ],
)
def test_what_does_not_belong_together_or_is_not_there(arguments, message):
    with pytest.raises(ShapeshiftError, match=message):
        pivot(RESULTS, *arguments)


def test_a_seed_counts_once():
    doubled = Results((*RESULTS.rows, RESULTS.rows[3]))
    with pytest.raises(ShapeshiftError, match="has seed 1 twice"):
        pivot(doubled, "data", "position", "BLEU", where=TEST)
