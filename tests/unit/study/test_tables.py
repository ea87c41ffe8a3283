"""The fields of a table, made of results that are written by hand."""

from statistics import fmean

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.run.measures import Metric, mean_of
from shapeshift.study.measured import Measured
from shapeshift.study.spec import PublishedSpec, TableSpec
from shapeshift.study.tables import TableBuilder, published_table

from .conftest import REFERENCES, column, judged, put, result, texts
from .test_measured import RUNS, make_study

LAYERS = {1: (0.1, 0.9), 2: (0.6, 0.2), 3: (0.2, 0.3)}
"""Seed → similarity in the layers 1 and 2: the mean is lowest in layer 1."""


@pytest.fixture
def measured(tmp_path):
    """`ape` and `shape`, three seeds of each."""
    for planned in RUNS:
        value = planned.seed + 10.0 * (planned.axes["position"] == "shape")
        found = [
            result(metric, value + 5 * (split == "valid"), split=text)
            for metric in ("BLEU", "chrF2")
            for split in ("valid", "test")
            for text in (split, mean_of(split))
        ]
        for split in ("valid", "test"):
            length = value + 100 * (split == "valid")
            found.append(result("BLEU", length, split=split, bucket="0–9"))
        layers = (0.0, *LAYERS[planned.seed])
        found += [
            result("shift_similarity", own, split="valid", bucket=f"layer {layer}")
            for layer, own in enumerate(layers)
        ]
        put(tmp_path, planned, found)
    return Measured(RUNS, tmp_path, tmp_path / "prepared")


def test_scores_stand_with_their_signatures_and_parameters_are_whole(tmp_path):
    for planned in RUNS:
        found = [
            result("BLEU", 20.0, split=mean_of("test")).model_copy(update={"signature": "s|v:1"}),
            result("parameters", 1246208.0),
        ]
        put(tmp_path, planned, found)
    measured = Measured(RUNS, tmp_path, tmp_path / "prepared")
    table = build(measured, {"BLEU": {"split": "test"}, "size": {"metric": "parameters"}})
    assert texts(table)[0][1:] == ["20.00 ± 0.00", "1,246,208"]
    assert "BLEU: s|v:1" in table.notes


def build(measured, columns, **more):
    spec = TableSpec(title="t", rows=["position"], columns=columns, **more)
    return TableBuilder(spec, measured).table("t")


def test_runs_that_are_not_finished_are_named_below_the_table(tmp_path):
    for planned in RUNS:
        is_ape = planned.axes["position"] == "ape"
        if is_ape and planned.seed < 3:
            put(tmp_path, planned, hypotheses=REFERENCES)
        if planned.seed == 2 and not is_ape:
            put(tmp_path, planned, measures=("train",))
    columns = {"BLEU": {"split": "test"}, "gain": {"gain_of": "BLEU"}}
    table = build(Measured(RUNS, tmp_path, tmp_path), columns, baseline={"position": "ape"})
    lacking = " and ".join(RUNS[0].measures)
    assert table.notes[1:3] == (
        f"not finished: ape seed 3; shape seed 1, 2 without {lacking}, 3",
        "gains are over the seeds that both sides have finished",
    )
    for planned in RUNS:
        put(tmp_path, planned, hypotheses=REFERENCES)
    table = build(Measured(RUNS, tmp_path, tmp_path), columns, baseline={"position": "ape"})
    assert not [note for note in table.notes if "finished" in note]


def test_a_bucket_of_lengths_is_one_of_its_split(measured):
    made = build(measured, {x: {"split": x, "bucket": "0–9"} for x in ("valid", "test")})
    assert texts(made)[0] == ["ape", "102.00 ± 1.00", "2.00 ± 1.00"]


def test_the_lowest_layer_is_that_of_the_mean_over_seeds(measured):
    made = build(measured, {"s": {"metric": "shift_similarity", "layers": "lowest"}})
    first = [values[0] for values in LAYERS.values()]
    assert column(made, "s")["ape"].value == pytest.approx(fmean(first))
    assert column(made, "s")["ape"].text == "0.300 ± 0.265"


def test_two_columns_of_each_set_have_titles_of_their_own(measured):
    both = {"b": {"split": "each set"}, "c": {"split": "each set", "metric": "chrF2"}}
    names = ("valid", "test", "average")
    assert build(measured, {"b": both["b"]}).header == ("position", *names)
    made = build(measured, both)
    assert made.header == ("position", *(f"{x} {y}" for x in "bc" for y in names))
    assert texts(made)[0][1:4] == ["7.00 ± 1.00", "2.00 ± 1.00", "4.50"]
    with pytest.raises(ShapeshiftError, match="two columns 'test'; change the title of one"):
        build(measured, {"test": {"split": "test"}, "b": both["b"]})


def test_what_is_not_tested_says_why(measured, tmp_path):
    """Speed has no examples: its test takes three seeds, and a value of the baseline."""
    for planned in RUNS:
        is_shape = planned.axes["position"] == "shape"
        found = [result("error", 0.5 - 0.1 * is_shape, split="test")] if planned.seed < 3 else []
        put(tmp_path, planned, found + [result("loss", 1.0, split="test")] * is_shape)
    own = (Metric("error", better="lower", splits=("test",)), Metric("loss", splits=("test",)))
    measured.__dict__["declared"] = [*own]
    columns = {x: {"metric": x, "split": "test"} for x in ("error", "loss")}
    columns["gain"] = {"gain_of": "error"}
    made = build(measured, columns, baseline={"position": "ape"})
    assert column(made, "gain")["shape"].text == "+0.10"
    assert {entry.p_value for row in made.rows for entry in row} == {None}
    notes = [note for note in made.notes if "test" in note or note.startswith("*")]
    why = {"error": "fewer than 3 seeds", "loss": "not measured"}
    assert notes == [f"not tested ({reason}): shape in {x}" for x, reason in why.items()]


def test_a_text_without_sentences_of_these_lengths_is_not_tested(tmp_path, monkeypatch):
    for planned in RUNS:
        put(tmp_path, planned, hypotheses=REFERENCES)
    monkeypatch.setattr("shapeshift.study.tables.length_bounds", lambda *_: (60, None))
    columns = {"BLEU": {"split": "test", "lengths": "beyond"}}
    made = build(make_study(tmp_path), columns, baseline={"position": "ape"})
    assert texts(made) == [["ape", "–"], ["shape", "–"]]


def test_a_figure_has_the_settings_of_the_rows(measured):
    plot = {"title": "p", "x": "position", "y": "b"}
    made = build(measured, {"b": {"split": "test"}}, only={"position": "shape"}, plot=plot)
    [axes] = made.drawing.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["shape"]
    assert list(axes.lines[0].get_ydata()) == [12]


def test_the_papers_rows_have_a_field_for_each_column(measured):
    spec = TableSpec(title="t", rows=["position"], columns={"b": {"split": "test"}})
    ours = TableBuilder(spec, measured).table("t")
    given = PublishedSpec(rows=[["ape", 1.5], ["rpe", [29.05, 29.13, 0.16]]])
    paper = published_table(spec, given, ours)
    assert paper.header == ours.header
    assert texts(paper) == [["ape", "1.50"], ["rpe", "29.13 ± 0.16 (median 29.05)"]]
    wrong = PublishedSpec(rows=[["ape", 1.5, 2]])
    with pytest.raises(ShapeshiftError, match=r"3 fields for 2 columns \(position, b\)"):
        published_table(spec, wrong, ours)


def test_a_claim_about_lengths_needs_lengths_that_training_limits(measured):
    pair = {"test": {"position": "shape"}, "against": {"position": "ape"}}
    with pytest.raises(ShapeshiftError, match="lengths beyond those in training, which"):
        judged(measured, rule="better", lengths="beyond", **pair)
