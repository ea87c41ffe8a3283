"""The marks of tables, made of runs whose translations are known: the baseline's are half right."""

import pytest

from shapeshift.study.measured import Measured

from .conftest import REFERENCES, find_study, planned_runs, put

HALF = {"valid": 2, "test": 2}
ALL = {"valid": 1, "test": 1}
"""Split → of how many sentences one is right; the words of the others stand the wrong way round."""


@pytest.fixture
def build(tmp_path):
    """Makes the first table of a study of runs whose translations are given: settings → `ALL`."""

    def make(name, given):
        study = find_study(name)
        runs = [planned for planned in planned_runs(study.grid.name, "tiny") if planned.seed == 1]
        for planned in runs:
            for split, every in given.get(tuple(planned.axes.values()), {}).items():
                lines = [
                    line if number % every == 0 else " ".join(reversed(line.split()))
                    for number, line in enumerate(REFERENCES)
                ]
                put(tmp_path, planned, hypotheses=lines, texts=(split,))
        return study.build(Measured(runs, tmp_path, tmp_path / "prepared")).tables[0]

    return make


def marked(table):
    """Return which fields have a mark: words of their row, title of their column."""
    return {
        (*(entry.text for entry in row if entry.value is None and entry.text != "–"), title)
        for row in table.rows
        for title, field in zip(table.header, row, strict=True)
        if field.value is not None and field.text.endswith("*")
    }


MARKED = {
    "nhk:table2": ("position = original-qkv", {("less-feeding",): ALL, ("none",): HALF}, set()),
    "nhk:table3": (  # each direction by itself
        "position = original-qkv",
        {("original-qkv", "en-de"): HALF, ("original-qkv", "de-en"): HALF,
         ("relative", "en-de"): HALF, ("relative", "de-en"): ALL},
        {("relative", "yes", "", "de-en BLEU")},
    ),
    "shaw:table3": (  # each split by itself
        "values = yes, keys = yes",
        {("yes", "yes"): HALF, ("no", "yes"): {"valid": 2, "test": 1}, ("yes", "no"): HALF},
        {("no", "yes", "test BLEU")},
    ),
    "beyond:places": (  # a baseline in another column
        "kind = none, place = self",
        {("none", "self"): HALF, ("sinusoidal", "self"): ALL, ("learned", "self"): HALF,
         ("learned", "cross"): ALL},
        {("sinusoidal", "self"), ("learned", "cross")},
    ),
}  # fmt: skip
"""Grid → baseline in the note, translations, and what is marked."""


@pytest.mark.parametrize("grid", MARKED)
def test_a_column_marks_what_differs_from_its_baseline(grid, build):
    baseline, given, expected = MARKED[grid]
    table = build(grid, given)
    notes = [note for note in table.notes if note.startswith("* significantly different from ")]
    assert len(notes) == bool(expected)
    assert all(baseline in note for note in notes)
    assert marked(table) == expected
    entries = [entry for row in table.rows for entry in row]
    assert all(x.p_value < 0.05 for x in entries if x.value is not None and x.text[-1] == "*")
    is_tested = [entry.p_value is not None for entry in entries if entry.text[-1:] != "*"]
    assert any(is_tested) == bool(expected)


def test_what_has_no_baseline_is_said_to_be_untested(build):
    """Else a score without a mark reads as one that does not differ."""
    table = build("nhk:table2", {("less-feeding",): ALL, ("none",): HALF})
    [note] = [note for note in table.notes if "test" in note]
    assert "no finished run of position = original-qkv" in note
    assert note.endswith(": less-feeding in BLEU, none in BLEU")
    given = {
        ("original-qkv", "en-de"): HALF,
        ("relative", "en-de"): ALL,
        ("relative", "de-en"): ALL,
    }
    table = build("nhk:table3", given)
    marks, untested = (note for note in table.notes if "test" in note)
    assert marks.startswith("* significantly different from position = original-qkv")
    assert untested.endswith(": relative de-en in BLEU")
