import math

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.lengths import LengthBucket
from shapeshift.evaluation.metrics import Score
from shapeshift.evaluation.scores import Scores
from shapeshift.lab.analysis.length_bleu import axis_title, compute, plot, tabulate

EDGES = (10, 20, 30)
COUNTS = (40, 30, 0, 3)


def scores(*values):
    """Scores whose buckets have these BLEU values; `None` for an empty bucket."""

    def score(value):
        return Score(name="BLEU", value=value, signature="tok:13a", details={})

    bounds = zip((0, *EDGES), (*EDGES, None), COUNTS, values, strict=True)
    return Scores(
        version="0",
        num_segments=sum(COUNTS),
        hypotheses_sha256="",
        references_sha256="",
        scores=(score(20.0),),
        by_length=tuple(
            LengthBucket(
                low=low, high=high, num_segments=n, score=None if value is None else score(value)
            )
            for low, high, n, value in bounds
        ),
    )


APE = [scores(20, 24, None, 4), scores(22, 24, None, 8)]
SHAPE = [scores(24, 25, None, 20)]


def test_runs_are_averaged_and_their_spread_is_a_sample_deviation():
    ape, shape = compute({"APE": APE, "SHAPE": SHAPE}).curves
    assert ape.mean[0] == pytest.approx(21)
    assert ape.spread[0] == pytest.approx(math.sqrt(2))
    assert ape.spread[1] == 0
    assert ape.num_runs == 2
    assert shape.mean[3] == 20
    assert shape.spread[3] == 0


def test_an_empty_bucket_is_nan():
    [curve] = compute({"APE": APE}).curves
    assert [math.isnan(value) for value in curve.mean] == [False, False, True, False]


def test_gains_are_measured_from_the_baseline_and_leave_it_out():
    [gain] = compute({"APE": APE, "SHAPE": SHAPE}, baseline="APE").gains()
    assert gain.name == "SHAPE"
    assert gain.mean[:2] == pytest.approx((3, 1))
    assert gain.mean[3] == pytest.approx(14)


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        ({"APE": APE}, {"baseline": "APF"}, "unknown baseline 'APF'.*did you mean 'APE'"),
        ({"APE": []}, {}, "'APE' has no runs"),
        ({}, {}, "at least one system"),
        (
            {"APE": [APE[0], APE[0].model_copy(update={"by_length": None})]},
            {},
            r"'APE \(run 2\)' has no BLEU by length",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(systems, options, message):
    with pytest.raises(ShapeshiftError, match=message):
        compute(systems, **options)


def shaded(axes):
    """The shaded spans of the x axis, from left to right."""
    return sorted((p.get_x(), p.get_x() + p.get_width()) for p in axes.patches)


@pytest.mark.parametrize(
    ("trained", "spans"),
    [
        (None, []),
        ((1, None), []),
        ((1, 20), [(1.5, 3.5)]),
        ((1, 16), [(1.1, 3.5)]),  # six tenths of the second bucket were seen
        ((10, 20), [(-0.5, 0.5), (1.5, 3.5)]),
        ((30, None), [(-0.5, 2.5)]),
        ((1, 35), [(3.0, 3.5)]),  # the open bucket runs as fast as its neighbour
        ((1, 1000), []),
    ],
)
def test_shading_begins_and_ends_where_training_did(trained, spans):
    [axes] = plot(compute({"APE": APE}, trained=trained)).axes
    assert shaded(axes) == [pytest.approx(span) for span in spans]


def test_the_gain_panel_keeps_each_systems_colour():
    absolute, gain = plot(compute({"APE": APE, "SHAPE": SHAPE}, baseline="APE")).axes
    colours = {line.get_label(): line.get_color() for line in absolute.lines}
    gain_colours = {line.get_label(): line.get_color() for line in gain.lines}
    assert gain_colours["SHAPE"] == colours["SHAPE"] != colours["APE"]
    assert "APE" not in gain_colours


def test_ticks_name_lengths_and_counts_and_small_buckets_are_hollow():
    [axes] = plot(compute({"SHAPE": SHAPE})).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["0–9\n40", "10–19\n30", "20–29\n0", "≥ 30\n3"]
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [20]


@pytest.mark.parametrize(
    ("run", "trained", "title"),
    [
        (APE[0], None, "source length (below: segments; hollow: fewer than 10)"),
        (
            APE[0],
            (1, 20),
            "source length (below: segments; shaded: unseen in training; hollow: fewer than 10)",
        ),
        (
            APE[0].model_copy(update={"by_length": APE[0].by_length[:2]}),
            None,
            "source length (below: segments)",
        ),
    ],
)
def test_the_axis_says_what_marks_there_are(run, trained, title):
    data = compute({"APE": [run]}, trained=trained)
    assert plot(data).get_supxlabel() == axis_title(data) == title


def test_the_table_marks_unseen_lengths_small_buckets_and_spread():
    table = tabulate(compute({"APE": APE, "SHAPE": SHAPE}, trained=(1, 20)))
    assert table.header == ("source length", "segments", "APE", "SHAPE")
    assert [row[0] for row in table.rows] == ["0–9", "10–19", "20–29‡", "≥ 30‡"]
    assert table.rows[0] == ("0–9", "40", "21.00 ± 1.41", "24.00")
    assert table.rows[2][2:] == ("–", "–")
    assert table.rows[3][3] == "20.00†"
    assert len(table.notes) == 3


def test_a_table_of_single_runs_over_all_lengths_needs_few_notes():
    table = tabulate(compute({"SHAPE": SHAPE}))
    assert not any("*" in row[0] for row in table.rows)
    assert not any("±" in cell for row in table.rows for cell in row)
