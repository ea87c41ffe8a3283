"""Table 3: relative positions in the values, in the keys, in both or in neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from shapeshift.lab.measures import mean_of
from shapeshift.lab.significance import Comparison
from shapeshift.papers.claims import (
    MARGIN,
    Tests,
    Untested,
    better,
    finding,
    no_worse,
    told,
    versus,
)
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Finding
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shaw.shared import LONG_RUNS
from shapeshift.papers.shaw.table2 import judge_collapse
from shapeshift.papers.study import Axes, Study

GRID = "shaw-table3"

PUBLISHED = {("yes", "yes"): 25.8, ("no", "yes"): 25.8, ("yes", "no"): 25.3, ("no", "no"): 12.5}
"""Values, keys → BLEU on newstest2013."""

HEADER = ("values (a^V)", "keys (a^K)")

KEYS_ALONE, VALUES_ALONE, NEITHER = ("no", "yes"), ("yes", "no"), ("no", "no")
BOTH = ("yes", "yes")

Alone = Mapping[tuple[str, str], Comparison | Untested]
"""Values, keys → the test of what is not both."""


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    tests = _tests(study, "valid")
    both = versus(study, GRID, "keys", ("yes", "no"), {"values": "yes"}, split="valid")
    return Content(
        tables=[_ours(study, {"valid": tests, "test": _tests(study, "test")}), published()],
        findings=[
            _keys(study, {"keys alone, beside both": tests[KEYS_ALONE]}),
            _values(study, {"both, beside values alone": both}),
            _neither(study, tests[NEITHER]),
        ],
    )


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table3-paper",
        title="BLEU by where relative positions enter, on newstest2013 in the paper",
        origin="paper",
        header=(*HEADER, "BLEU"),
        rows=tuple((*words(*place), number(score, ".1f")) for place, score in PUBLISHED.items()),
    )


def _tests(study: Study, split: Literal["valid", "test"]) -> Alone:
    """Test keys alone and values alone against both, and neither against keys alone: a test is of
    one setting."""
    settings: dict[tuple[str, str], tuple[str, Axes]] = {
        KEYS_ALONE: ("values", {"keys": "yes"}),
        VALUES_ALONE: ("keys", {"values": "yes"}),
        NEITHER: ("keys", {"values": "no"}),
    }
    return {
        place: versus(study, GRID, axis, ("no", "yes"), axes, split=split)
        for place, (axis, axes) in settings.items()
    }


def _ours(study: Study, tests: Mapping[str, Alone]) -> DocumentTable:
    """Make the table; `tests` are those of each split."""
    columns = {split: _column(each) for split, each in tests.items()}
    rows = []
    for place in (BOTH, KEYS_ALONE, VALUES_ALONE, NEITHER):
        axes = dict(zip(("values", "keys"), place, strict=True))
        scores = [
            study.entry(
                study.rows(GRID, "BLEU", axes, dataset=mean_of(split)),
                "mean ± stdev",
                column.mark(" ".join(place)),
            )
            for split, column in columns.items()
        ]
        rows.append((*words(*place), *scores))
    return DocumentTable(
        name="table3",
        title="BLEU by where relative positions enter",
        header=(*HEADER, "valid BLEU", "test BLEU"),
        rows=tuple(rows),
        notes=(
            study.spread(GRID),
            note("keys and values both (the last row: from keys alone)"),
        ),
    )


def _column(tests: Alone) -> Column:
    """Return the tests of a column, each under the name of its row."""
    return Column(
        [
            replace(test, system=" ".join(place))
            for place, test in tests.items()
            if isinstance(test, Comparison)
        ]
    )


def _keys(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        f"Keys alone are enough: they lose no more than {MARGIN} BLEU against both.",
        no_worse(tests),
        told(tests),
        "25.8 and 25.8",
        f"short runs also show which of two learns faster; {LONG_RUNS}",
    )


def _values(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        "Values alone are not: both are better.",
        better(tests),
        told(tests),
        "both 25.8, values alone 25.3",
        f"half a point needs long runs and a large test set to show; {LONG_RUNS}",
    )


def _neither(study: Study, test: Comparison | Untested) -> Finding:
    return finding(
        study,
        "Without either translation collapses.",
        judge_collapse(test),
        told({"neither, beside keys alone": test}),
        "12.5 and 25.8",
        "short sentences can be put in order by what their words are; the paper's are longer:"
        " see scale paper",
    )


ITEM = Item("Table 3: relative positions in values and keys", (GRID,), build)
