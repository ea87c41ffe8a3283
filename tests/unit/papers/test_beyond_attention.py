"""Every kind in the two attentions, in the values, and in two sizes of model: the grids that share
the papers' runs, and their tables, made of a few runs of a few updates."""

import pytest

from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond import cross, directions, sizes, values
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study

CROSS = {
    ("none", "own", "none"),
    ("alibi", "own", "none"),
    ("alibi", "own", "rotary"),
    ("sinusoidal", "own", "none"),
    ("sinusoidal", "qkv", "none"),
    ("xpos", "own", "sinusoidal"),
}
DIRECTIONS = {
    ("sinusoidal", "own", "no", "en-de"),
    ("sinusoidal", "own", "yes", "en-de"),
    ("t5", "own", "no", "en-de"),
    ("t5", "own", "no", "de-en"),
    ("learned", "qkv", "no", "en-de"),
}
VALUES = {("none", "weights"), ("shaw", "weights"), ("shaw", "both"), ("learned", "values")}
SIZES = {("base", "en-de", "ape"), ("big", "en-de", "rope")}


@pytest.fixture(scope="module")
def some(make_study):
    """Makes the study of a grid of which few cells are done, on a text of no other test: what is
    not done elsewhere stays undone."""

    def make(grid, done, num_train=239):
        return make_study(
            grid,
            done=lambda cell: tuple(cell.axes.values()) in done,
            seeds=(1,),
            extra=(f"data.corpus.num_train={num_train}",),
        )

    return make


def fields(table, num_heads=1):
    return {
        tuple(entry.text for entry in row[:num_heads]): dict(zip(table.header, row, strict=True))
        for row in table.rows
    }


def measured(table):
    """Return the words of the row and the title of the column of every number."""
    return {
        (row[0].text, title)
        for row in table.rows
        for title, entry in zip(table.header, row, strict=True)
        if entry.value is not None
    }


def against(system, baseline, gain, p):
    return Comparison(system, baseline, "bleu", 30.0 + gain, 30.0, {1: p})


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ("beyond-cross", "nhk-table2"),
        ("beyond-directions", "nhk-table3"),
        ("beyond-values", "shaw-table3"),
        ("beyond-sizes", "shaw-table1"),
    ],
)
@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_the_paper_s_table_is_part_of_the_grid_for_all_kinds(own, theirs, scale):
    keys = [
        {
            cell.key
            for cell in find_grid(grid).cells(scale)
            if not cell.axes.get("system", "").startswith("original-embedding")
        }
        for grid in (own, theirs)
    ]
    assert keys[1] < keys[0]


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_at_other_scales_no_kind_is_left_out(scale):
    every = {"sinusoidal", "learned", "shaw", "skew", "t5", "alibi", "rotary", "xpos", "tupe"}
    cells = {
        grid: find_grid(grid).cells(scale)
        for grid in ("beyond-cross", "beyond-directions", "beyond-values")
    }
    for found in cells.values():
        assert {cell.axes["kind"] for cell in found} - {"none"} == every
    crossing = {cell.axes["crossing"] for cell in cells["beyond-cross"]}
    assert crossing == {"none", "sinusoidal", "learned", "rotary", "tupe"}
    reaching = {c.axes["kind"] for c in cells["beyond-values"] if c.axes["enters"] != "weights"}
    assert reaching == {"sinusoidal", "learned", "shaw"}


def test_xpos_has_rotary_in_the_encoder_and_crosses_like_others():
    cells = {tuple(cell.axes.values()): cell for cell in find_grid("beyond-cross").cells("tiny")}
    scheme = cells["xpos", "own", "sinusoidal"].config.position.scheme
    assert [(part.kind, part.place, part.stacks) for part in scheme.parts] == [
        ("rotary", "self", "encoder"),
        ("sinusoidal", "cross", "both"),
        ("xpos", "self", "decoder"),
    ]


def test_cross_has_a_row_for_each_system_and_a_column_for_each_kind(some):
    study = some("beyond-cross", CROSS)
    [table] = cross.build(study).tables
    crossing = ("cross: none", "cross: sinusoidal", "cross: rotary", "cross: tupe")
    assert table.header == ("self-attention", *crossing)
    assert {"none", "sinusoidal", "sinusoidal in Q, K, V", "xpos"} < {
        row[0] for row in fields(table)
    }
    assert measured(table) == {
        ("none", "cross: none"),
        ("alibi", "cross: none"),
        ("alibi", "cross: rotary"),
        ("sinusoidal", "cross: none"),
        ("sinusoidal in Q, K, V", "cross: none"),
        ("xpos", "cross: sinusoidal"),
    }


def test_cross_tests_crossings_by_row_and_inputs_by_kind(some):
    study = some("beyond-cross", CROSS)
    sinusoidal, rotary, tupe, inputs = cross.build(study).findings
    assert "sinusoidal positions" in sinusoidal.claim
    assert "tupe positions" in tupe.claim
    assert "not finished: alibi," in sinusoidal.measured
    assert "alibi +0.00" in rotary.measured or "alibi" in rotary.measured.split("; not finished")[0]
    assert "none" not in rotary.measured.split("not finished: ")[1].split(";")[0].split(", ")
    assert "sinusoidal" in inputs.measured.split("; not finished")[0]
    assert "not finished: learned" in inputs.measured


def test_cross_marks_what_differs(some, monkeypatch):
    study = some("beyond-cross", CROSS)

    def comparisons(grid, axis, baseline, axes):
        assert grid == cross.GRID
        if axis == "kind":
            assert (baseline, dict(axes)) == ("none", {"crossing": "none", "inputs": "own"})
            return {("own", "none"): [against("alibi", "none", 9, 0.001)]}
        if axis == "inputs":
            found = against(
                *(("qkv", "own", -5) if baseline == "own" else ("own", "qkv", 5)), 0.001
            )
            return {("sinusoidal", "none"): [found]} if axes["kind"] == "sinusoidal" else {}
        assert axis == "crossing"
        system = (axes["kind"], axes["inputs"])
        better = system == ("alibi", "own") and axes["crossing"] == ("rotary", "none")
        return {system: [against("rotary", "none", 4, 0.001)]} if better else {}

    monkeypatch.setattr(study, "comparisons", comparisons)
    content = cross.build(study)
    marked = {
        (row[0], title)
        for row, found in fields(content.tables[0]).items()
        for title, entry in found.items()
        if entry.text.endswith("*")
    }
    assert marked == {
        ("alibi", "cross: none"),
        ("alibi", "cross: rotary"),
        ("sinusoidal in Q, K, V", "cross: none"),
    }
    assert "better: alibi +4.00" in content.findings[1].measured
    assert "better: sinusoidal +5.00" in content.findings[3].measured


def test_directions_has_columns_for_each_direction_with_cross_pe_and_without(some):
    study = some("beyond-directions", DIRECTIONS)
    content = directions.build(study)
    [table] = content.tables
    assert table.header == (
        "self-attention",
        "EN-DE",
        "DE-EN",
        "EN-DE, CROSS-PE",
        "DE-EN, CROSS-PE",
    )
    assert measured(table) == {
        ("sinusoidal", "EN-DE"),
        ("sinusoidal", "EN-DE, CROSS-PE"),
        ("t5", "EN-DE"),
        ("t5", "DE-EN"),
        ("learned in Q, K, V", "EN-DE"),
    }
    relative, less_feeding, crossing = content.findings
    assert "en-de t5" in relative.measured.split("; not finished")[0]
    left = relative.measured.split("not finished: ")[1].split(";")[0].split(", ")
    assert {"de-en t5", "de-en shaw", "en-de xpos"} < set(left)  # t5 has no baseline there
    assert not any("sinusoidal" in name or "learned" in name for name in left)
    assert "not finished: de-en learned, de-en sinusoidal" in less_feeding.measured
    assert "en-de sinusoidal" in crossing.measured.split("; not finished")[0]
    assert {each.verdict for each in content.findings} == {"cannot tell"}


def test_at_the_paper_s_scale_directions_are_its_four(papers_root):
    cells = {"beyond-directions": find_grid("beyond-directions").cells("paper")}
    steps = {"beyond-directions": ("score-test",)}
    study = Study(cells, steps, papers_root / "cells", papers_root / "prepared")
    [table] = directions.build(study).tables
    assert table.header[1:5] == ("FR-DE", "DE-FR", "JA-EN", "EN-JA")


def test_values_has_three_columns_and_judges_kinds_that_reach_them(some):
    study = some("beyond-values", VALUES)
    content = values.build(study)
    [table] = content.tables
    assert measured(table) == {
        ("none", "weights (Q, K, scores)"),
        ("shaw", "weights (Q, K, scores)"),
        ("shaw", "both"),
        ("learned", "values"),
    }
    enough, not_enough, needed = content.findings
    assert enough.measured.count("not measured") == 2  # sinusoidal and learned
    assert "shaw in the weights, beside both: " in enough.measured
    assert "not finished: learned, shaw, sinusoidal" in not_enough.measured
    assert "alibi" in needed.measured.split("not finished: ")[1]
    assert "none" not in needed.measured.split("not finished: ")[1].split(";")[0].split(", ")


def test_sizes_has_a_column_for_each_size(some, monkeypatch):
    study = some("beyond-sizes", SIZES, num_train=237)  # some of these stand in beyond-values

    def comparisons(grid, axis, baseline, axes):
        assert (grid, axis, baseline) == ("beyond-sizes", "position", "ape")
        better = {"base": 0.2, "big": 0.001}[axes["model"]]
        return {(axes["model"], "en-de"): [against("rope", "ape", 2, better)]}

    monkeypatch.setattr(study, "comparisons", comparisons)
    content = sizes.build(study)
    [table] = content.tables
    assert table.header == ("position", "base EN-DE", "big EN-DE")
    # Both sizes are one in these tests, so that their runs are.
    assert {row for row, _ in measured(table)} == {"ape", "rope"}
    rope = fields(table)["rope",]
    assert not rope["base EN-DE"].text.endswith("*")
    assert rope["big EN-DE"].text.endswith("*")
    base, big = content.findings
    assert "no difference shown: en-de rope +2.00" in base.measured
    assert "better: en-de rope +2.00" in big.measured
    assert "not finished: en-de alibi, en-de rpe" in big.measured
