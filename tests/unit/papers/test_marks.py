"""The marks of tables, made of runs whose translations are known: the baseline's are half right."""

import shutil

import pytest

from shapeshift.data.sources.files import read_lines
from shapeshift.lab.measures import hypotheses_file, keep_lines, references_file
from shapeshift.papers.build import shipped_item
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study

SEED = 9
"""Of no other test: what is not done there stays undone."""

HALF = {"valid": 2, "test": 2}
ALL = {"valid": 1, "test": 1}
TEST_ALONE = {"valid": 2, "test": 1}
"""Split → of how many sentences one is right; the words of the others stand the wrong way round."""


@pytest.fixture
def translated(make_study, papers_root, tmp_path):
    """Makes a study of cells whose translations are given: settings → split → see `ALL`."""

    def make(grid, given):
        def wanted(cell):
            return tuple(cell.axes.values()) in given

        made = make_study(grid, seeds=(SEED,), done=wanted)
        root = tmp_path / "cells"
        for cell in filter(wanted, made.cells(grid)):
            shutil.copytree(papers_root / "cells" / cell.key, root / cell.key)
            results = root / cell.key / "run" / "results"
            for split, every in given[tuple(cell.axes.values())].items():
                if (results / references_file(split)).exists():
                    translate(results, split, every)
        steps = {grid: find_grid(grid).config.steps}
        return Study({grid: made.cells(grid)}, steps, root, papers_root / "prepared")

    return make


def translate(results, split, every):
    """Write translations of which one in `every` is the reference."""
    lines = [
        line if number % every == 0 else " ".join(reversed(line.split()))
        for number, line in enumerate(read_lines(results / references_file(split)))
    ]
    keep_lines(results / hypotheses_file(split), lines)


def marked(table):
    """Return which fields have a mark: words of their row, title of their column."""
    return {
        (*(entry.text for entry in row if entry.value is None and entry.text != "–"), title)
        for row in table.rows
        for title, field in zip(table.header, row, strict=True)
        if field.value is not None and field.text.endswith("*")
    }


def ours(paper, item, study, baseline):
    table = shipped_item(paper, item).build(study).tables[0]
    [note] = [note for note in table.notes if note.startswith("* differs from ")]
    assert baseline in note
    return table


def test_nhk_table2_marks_averages_that_differ_from_the_original(translated):
    study = translated(
        "nhk-table2", {("original-qkv",): HALF, ("less-feeding",): ALL, ("none",): HALF}
    )
    table = ours("nhk", "table2", study, "system = original-qkv")
    assert marked(table) == {("less-feeding", "none", "average", "BLEU")}


def test_nhk_table3_marks_each_direction_by_itself(translated):
    study = translated(
        "nhk-table3",
        {
            ("original-qkv", "en-de"): HALF,
            ("original-qkv", "de-en"): HALF,
            ("relative", "en-de"): HALF,
            ("relative", "de-en"): ALL,
        },
    )
    table = ours("nhk", "table3", study, "system = original-qkv")
    assert {fields[-1] for fields in marked(table)} == {"de-en BLEU"}
    assert {fields[:1] for fields in marked(table)} == {("relative",)}
    assert len(marked(table)) == 1


def test_nhk_table5_marks_what_differs_from_all_three(translated):
    study = translated("nhk-table5", {("qkv",): HALF, ("qk",): HALF, ("none",): ALL})
    table = ours("nhk", "table5", study, "positions_in = qkv")
    [(*words, title)] = marked(table)
    assert [word for word in words if word] == ["average"]  # neither Q nor K nor V says yes
    assert title == "BLEU"


def test_without_the_baseline_nothing_is_marked(translated):
    study = translated("nhk-table2", {("less-feeding",): ALL, ("none",): HALF})
    assert marked(shipped_item("nhk", "table2").build(study).tables[0]) == set()


def test_shaw_table2_marks_validation_and_test_each_by_its_own_tests(translated):
    study = translated(
        "shaw-table2",
        {("16",): HALF, ("0",): ALL, ("4",): TEST_ALONE, ("64",): HALF},
    )
    table = ours("shaw", "table2", study, "k = 16")
    assert marked(table) == {("0", "valid BLEU"), ("0", "test BLEU"), ("4", "test BLEU")}


def test_shaw_table3_marks_each_split_by_itself(translated):
    study = translated(
        "shaw-table3",
        {
            ("yes", "yes"): HALF,
            ("no", "yes"): TEST_ALONE,
            ("yes", "no"): HALF,
            ("no", "no"): ALL,
        },
    )
    table = ours("shaw", "table3", study, "values = yes, keys = yes")
    assert marked(table) == {
        ("no", "yes", "test BLEU"),
        ("no", "no", "valid BLEU"),
        ("no", "no", "test BLEU"),
    }


def test_the_search_for_k_marks_what_differs_from_the_papers_choice(translated):
    study = translated("shape-offsets", {("40",): HALF, ("10",): TEST_ALONE, ("500",): HALF})
    table = ours("shape", "offsets", study, "K = 40")
    assert marked(table) == {("10", "test BLEU")}


def test_places_marks_kinds_against_none_in_self_attention(translated):
    study = translated(
        "beyond-places",
        {
            ("none", "self"): HALF,
            ("sinusoidal", "self"): ALL,
            ("sinusoidal", "cross"): ALL,
            ("learned", "self"): HALF,
            ("learned", "cross"): ALL,
            ("learned", "embedding"): HALF,
        },
    )
    table = ours("beyond", "places", study, "kind = none, place = self")
    assert marked(table) == {("sinusoidal", "self"), ("sinusoidal", "cross"), ("learned", "cross")}
