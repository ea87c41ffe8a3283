"""The marks of tables, made of runs whose translations are known: the baseline's are half right."""

import shutil

import pytest

from shapeshift.data.sources.files import read_lines
from shapeshift.lab.measures import hypotheses_file, keep_lines, references_file
from shapeshift.papers.catalogue import find_paper
from shapeshift.papers.study import Study

SEED = 9
"""Of no other test: what is not done there stays undone."""

HALF = {"valid": 2, "test": 2}
ALL = {"valid": 1, "test": 1}
"""Split → of how many sentences one is right; the words of the others stand the wrong way round."""


@pytest.fixture
def translated(make_study, papers_root, tmp_path):
    """Makes a study of cells whose translations are given: settings → split → see `ALL`."""

    def make(grid, given):
        def wanted(cell):
            return tuple(cell.axes.values()) in given

        made = make_study(grid, wanted, seeds=(SEED,))
        root = tmp_path / "cells"
        for cell in filter(wanted, made.cells()):
            shutil.copytree(papers_root / "cells" / cell.key, root / cell.key)
            results = root / cell.key / "run" / "results"
            for split, every in given[tuple(cell.axes.values())].items():
                if (results / references_file(split)).exists():
                    translate(results, split, every)
        return Study(made.cells(), root, papers_root / "prepared")

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


MARKED = {
    "nhk-table3": (  # each direction by itself
        "system = original-qkv",
        {
            ("original-qkv", "en-de"): HALF,
            ("original-qkv", "de-en"): HALF,
            ("relative", "en-de"): HALF,
            ("relative", "de-en"): ALL,
        },
        {("relative", "yes", "", "de-en BLEU")},
    ),
    "shaw-table3": (  # each split by itself
        "values = yes, keys = yes",
        {
            ("yes", "yes"): HALF,
            ("no", "yes"): {"valid": 2, "test": 1},
            ("yes", "no"): HALF,
            ("no", "no"): ALL,
        },
        {("no", "yes", "test BLEU"), ("no", "no", "valid BLEU"), ("no", "no", "test BLEU")},
    ),
    "beyond-places": (  # a baseline in another column
        "kind = none, place = self",
        {
            ("none", "self"): HALF,
            ("sinusoidal", "self"): ALL,
            ("sinusoidal", "cross"): ALL,
            ("learned", "self"): HALF,
            ("learned", "cross"): ALL,
            ("learned", "embedding"): HALF,
        },
        {("sinusoidal", "self"), ("sinusoidal", "cross"), ("learned", "cross")},
    ),
}
"""Grid → baseline in the note, translations, and what is marked."""


@pytest.mark.parametrize("grid", MARKED)
def test_a_column_marks_what_differs_from_its_baseline(grid, translated):
    baseline, given, expected = MARKED[grid]
    paper, item = grid.split("-")
    table = find_paper(paper).items[item].build(translated(grid, given)).tables[0]
    [note] = [note for note in table.notes if note.startswith("* significantly different from ")]
    assert baseline in note
    assert marked(table) == expected
    entries = [entry for row in table.rows for entry in row]
    assert all(x.p_value < 0.05 for x in entries if x.value is not None and x.text[-1] == "*")
    assert any(entry.p_value is not None and entry.text[-1] != "*" for entry in entries)


def test_without_the_baseline_nothing_is_marked(translated):
    study = translated("nhk-table2", {("less-feeding",): ALL, ("none",): HALF})
    assert marked(find_paper("nhk").items["table2"].build(study).tables[0]) == set()
