"""Every kind in the first n layers, every preset on slices of the lengths: few of their runs, of a
few updates."""

import pytest

from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond import layers, slices
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study

from .conftest import without_source

LAYERS = {("shaw", "1"), ("shaw", "2"), ("alibi", "2"), ("xpos", "1")}
POSITIONS = ("ape", "alibi")


@pytest.fixture(scope="module")
def some_layers(make_study):
    """One kind with any number of layers, two with one number each."""
    two = ("model.encoder_layers=2", "model.decoder_layers=2")
    return make_study(
        "beyond-layers",
        done=lambda cell: tuple(cell.axes.values()) in LAYERS,
        seeds=(1,),
        extra=two,
    )


@pytest.fixture(scope="module")
def some_slices(make_study):
    """Two positions on both slices, one on the first alone."""

    def done(cell):
        position = cell.axes["position"]
        return position in POSITIONS or (position, cell.axes["lengths"]) == ("rope", "middle")

    longer_pieces = (
        "data.subwords.vocab_size=600",
        "data.corpus.num_train=600",
        "data.corpus.num_test=120",
        "data.corpus.max_words=24",
    )
    return make_study("beyond-slices", done=done, seeds=(1,), extra=longer_pieces)


def against(system, baseline, gain, p):
    return Comparison(system, baseline, "bleu", 30.0 + gain, 30.0, {1: p})


def fields(table, num_heads=1):
    """Return the first fields of a row → column → entry."""
    return {
        tuple(entry.text for entry in row[:num_heads]): dict(zip(table.header, row, strict=True))
        for row in table.rows
    }


def test_layers_has_a_row_for_each_kind_and_a_column_for_each_number(some_layers):
    table = layers.build(some_layers).tables[0]
    rows = fields(table)
    assert table.header == ("kind", "n = 1", "n = 2", "best n")
    assert {"sinusoidal", "learned", "xpos", "tupe"} < {kind for (kind,) in rows}
    measured = {
        (kind, title.removeprefix("n = "))
        for (kind,), row in rows.items()
        for title, entry in row.items()
        if entry.value is not None
    }
    assert measured == LAYERS


def test_every_number_of_ours_says_what_it_is_from(some_layers, some_slices):
    content = layers.build(some_layers)
    assert any(row[1].cells for row in content.tables[1].rows)  # of the tests
    for found in (content, slices.build(some_slices)):
        assert without_source(found) == set()


def test_the_best_number_is_told_of_kinds_that_have_all_numbers(some_layers):
    rows = fields(layers.build(some_layers).tables[0])
    scores = [rows["shaw",][f"n = {n}"].value for n in (1, 2)]
    assert rows["shaw",]["best n"].text == ("1" if scores[0] >= scores[1] else "2")
    assert {rows[kind,]["best n"].text for kind in ("alibi", "xpos", "skew")} == {"–"}


@pytest.mark.parametrize(
    ("scores", "setting"),
    [
        ({"1": [30.0, 34.0], "2": [33.0, 33.0], "3": [32.0]}, "2"),
        ({"1": [35.0], "2": []}, "–"),
        ({"1": [30.0], "2": [30.0]}, "1"),  # no reason for more
    ],
)
def test_best_is_the_highest_mean(scores, setting):
    assert layers.best(scores) == setting


def test_a_number_that_differs_from_all_layers_is_marked(some_layers, monkeypatch):
    def comparisons(grid, axis, baseline, axes, **options):
        assert (grid, axis) == ("beyond-layers", "layers")
        if baseline == "2":
            return (
                {} if set(axes["layers"]) == {"2"} else {("shaw",): [against("1", "2", -3, 0.01)]}
            )
        return {("shaw",): [against("2", "1", 3, 0.01)]}

    monkeypatch.setattr(some_layers, "comparisons", comparisons)
    content = layers.build(some_layers)
    rows = fields(content.tables[0])
    marked = {
        (kind, title)
        for (kind,), row in rows.items()
        for title, entry in row.items()
        if entry.text.endswith("*")
    }
    assert marked == {("shaw", "n = 1")}
    tests = fields(content.tables[1])
    assert tests["shaw 2 beside 1",]["difference"].text == "+3.00*"
    assert tests["alibi 2 beside 1",]["difference"].text == "–"
    [finding] = content.findings  # between one layer and two there is no number
    assert finding.verdict == "cannot tell"  # eight kinds are not measured
    assert "+3.00" in finding.measured


def test_deeper_models_have_a_second_claim(papers_root):
    """At the paper's depth the numbers between the first layer and all are judged both ways."""
    cells = {"beyond-layers": find_grid("beyond-layers").cells("paper")}
    steps = {"beyond-layers": ("score-test",)}
    deep = Study(cells, steps, papers_root / "cells", papers_root / "prepared")
    content = layers.build(deep)
    assert content.tables[0].header[1:-1] == tuple(f"n = {n}" for n in range(1, 7))
    more, fewer = content.findings
    assert {row[0].text for row in content.tables[1].rows} >= {"t5 2 beside 1", "t5 5 beside 1"}
    assert "t5 6 beside 1" not in {row[0].text for row in content.tables[1].rows}
    assert "all layers" in fewer.claim
    assert more.verdict == fewer.verdict == "cannot tell"


def test_layers_and_slices_share_the_runs_of_the_paper():
    """What NHK's grids have as well is trained once."""

    def keys(grid, **axes):
        return {
            cell.key
            for cell in find_grid(grid).cells("tiny")
            if all(cell.axes[axis] in wanted for axis, wanted in axes.items())
        }

    own = keys("beyond-layers", kind=("sinusoidal", "skew"))
    assert own == keys("nhk-table6", system=("less-feeding", "relative"))
    crossing = keys("beyond-slices", position=("less-feeding-cross-pe", "skew-cross-pe"))
    theirs = keys("nhk-figure3", system=("less-feeding-cross-pe", "relative-cross-pe"))
    assert crossing < theirs


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_at_other_scales_nothing_is_left_out(scale):
    kinds = {cell.axes["kind"] for cell in find_grid("beyond-layers").cells(scale)}
    assert {
        "sinusoidal",
        "learned",
        "shaw",
        "skew",
        "t5",
        "alibi",
        "rotary",
        "xpos",
        "tupe",
    } <= kinds
    found = [tuple(cell.axes.values()) for cell in find_grid("beyond-slices").cells(scale)]
    assert {lengths for lengths, _ in found} == {"all", "short", "middle", "long"}
    presets = {cell.axes["position"] for cell in find_grid("beyond-datasets").cells(scale)}
    assert {position for _, position in found} == presets


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        (None, {"inside": (0, None)}),
        ((0, 10), {"inside": (0, 10), "above": (10, None)}),
        ((16, 22), {"inside": (16, 22), "below": (0, 16), "above": (22, None)}),
        ((26, None), {"inside": (26, None), "below": (0, 26)}),
    ],
)
def test_lengths_inside_and_outside_of_a_slice(bounds, found):
    assert slices.ranges(bounds) == found


def test_slices_table_has_each_position_on_each_slice(some_slices):
    content = slices.build(some_slices)
    rows = fields(content.tables[0], 2)
    positions = some_slices.settings("beyond-slices", "position")
    assert list(rows) == [(each, name) for each in ("16–21", "≥ 26") for name in positions]
    measured = {
        (lengths, position): {title for title, entry in row.items() if entry.value is not None}
        for (lengths, position), row in rows.items()
        if any(entry.value is not None for entry in row.values())
    }
    middle = {"BLEU inside", "BLEU below", "BLEU above"}
    long = {"BLEU inside", "BLEU below"}
    assert measured == {
        ("16–21", "ape"): middle,
        ("16–21", "alibi"): middle,
        ("16–21", "rope"): middle,
        ("≥ 26", "ape"): long,
        ("≥ 26", "alibi"): long,
    }


def test_a_side_of_a_slice_is_scored_on_its_sentences_alone(some_slices):
    rows = fields(slices.build(some_slices).tables[0], 2)
    [cell] = some_slices.finished("beyond-slices", {"lengths": "middle", "position": "alibi"})
    below, inside, above = some_slices.scores(cell, edges=(16, 22)).by_length
    row = rows["16–21", "alibi"]
    for place, bucket in (("below", below), ("inside", inside), ("above", above)):
        assert bucket.num_segments >= 10
        assert row[f"BLEU {place}"].value == pytest.approx(bucket.bleu)


def test_the_figure_shows_what_all_slices_have_and_its_table_all_of_it(some_slices):
    content = slices.build(some_slices)
    [drawn] = content.figures
    assert drawn.about.table == content.tables[1].name
    panels = drawn.figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "trained on 16–21",
        "trained on ≥ 26",
    ]
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == [*POSITIONS]
    assert [len(axes.patches) for axes in panels] == [2, 1]  # shaded: both sides, the lower one
    rows = fields(content.tables[1], 2)
    assert rows["16–21", "rope"]["16–21"].value is not None
    assert rows["≥ 26", "rope"]["≥ 26"].value is None


def test_marks_and_claims_go_by_position_and_slice(some_slices, monkeypatch):
    def comparisons(grid, axis, baseline, axes, *, lengths):
        assert (grid, axis, baseline) == ("beyond-slices", "position", "ape")
        better = [against("alibi", "ape", 5, 0.001), against("shape", "ape", 1, 0.6)]
        return {(axes["lengths"],): better if lengths == (22, None) else []}

    monkeypatch.setattr(some_slices, "comparisons", comparisons)
    content = slices.build(some_slices)
    rows = fields(content.tables[0], 2)
    assert rows["16–21", "alibi"]["BLEU above"].text == "35.00*"
    assert rows["16–21", "shape"]["BLEU above"].text == "31.00"
    assert rows["16–21", "ape"]["BLEU above"].text == "30.00"
    longer, shorter, renumbered = content.findings
    assert "better: alibi on 16–21 +5.00" in longer.measured
    assert "rope on 16–21" in longer.measured.split("not finished: ")[1]
    assert "on ≥ 26" not in longer.measured  # nothing is longer
    assert "alibi on ≥ 26" in shorter.measured.split("not finished: ")[1]
    assert "no difference shown: shape on 16–21 +1.00" in renumbered.measured
    assert "ape" not in {name.split()[0] for name in longer.measured.split(": ")[-1].split(", ")}
