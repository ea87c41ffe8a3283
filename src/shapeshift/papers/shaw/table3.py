"""Table 3: relative positions in the values, in the keys, in both or in neither."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import LEVEL, MARK, Comparison
from shapeshift.papers.claims import MARGIN, Tests, better, finding, no_worse, told, versus
from shapeshift.papers.document import DocumentTable, Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shaw.table2 import judge_collapse
from shapeshift.papers.study import Axes, Study, number, words

GRID = "shaw-table3"

PUBLISHED = {("yes", "yes"): 25.8, ("no", "yes"): 25.8, ("yes", "no"): 25.3, ("no", "no"): 12.5}
"""Values, keys → BLEU on newstest2013."""

HEADER = ("values (a^V)", "keys (a^K)")

KEYS_ALONE, VALUES_ALONE, NEITHER = ("no", "yes"), ("yes", "no"), ("no", "no")
BOTH = ("yes", "yes")


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    keys_alone = _test(study, "values", ("no", "yes"), {"keys": "yes"})
    values_alone = _test(study, "keys", ("no", "yes"), {"values": "yes"})
    neither = _test(study, "keys", ("no", "yes"), {"values": "no"})
    both = _test(study, "keys", ("yes", "no"), {"values": "yes"})
    tests = {KEYS_ALONE: keys_alone, VALUES_ALONE: values_alone, NEITHER: neither}
    return Content(
        tables=[_ours(study, tests), published()],
        findings=[
            _keys(study, {"keys alone, beside both": keys_alone}),
            _values(study, {"both, beside values alone": both}),
            _neither(study, neither),
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


def _test(study: Study, axis: str, pair: tuple[str, str], axes: Axes) -> Comparison | None:
    return versus(study, GRID, axis, pair, axes, split="valid")


def _ours(study: Study, tests: Mapping[tuple[str, str], Comparison | None]) -> DocumentTable:
    rows = []
    for values, keys in (BOTH, *tests):
        test = tests.get((values, keys))
        axes = {"values": values, "keys": keys}
        mark = MARK if test is not None and test.significant else ""
        scores = [
            study.entry(
                study.rows(GRID, "BLEU", axes, dataset=mean_of(split)), "mean ± stdev", sign
            )
            for split, sign in (("valid", mark), ("test", ""))
        ]
        rows.append((*words(values, keys), *scores))
    return DocumentTable(
        name="table3",
        title="BLEU by where relative positions enter",
        header=(*HEADER, "valid BLEU", "test BLEU"),
        rows=tuple(rows),
        notes=(
            "mean ± standard deviation over seeds",
            f"{MARK} differs from both (the last row: from keys alone): p < {LEVEL}, paired"
            " bootstrap on validation, which the paper's table is about",
        ),
    )


def _keys(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        f"Keys alone are enough: they lose no more than {MARGIN} BLEU against both.",
        no_worse(tests),
        told(tests),
        "25.8 and 25.8",
        "the paper trains for 100,000 updates: short runs also show which of two learns faster",
    )


def _values(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        "Values alone are not: both are better.",
        better(tests),
        told(tests),
        "both 25.8, values alone 25.3",
        "half a point needs the paper's long training and test set to show",
    )


def _neither(study: Study, test: Comparison | None) -> Finding:
    return finding(
        study,
        "Without either translation collapses.",
        judge_collapse(test),
        told({"neither, beside keys alone": test}),
        "12.5 and 25.8",
        "short sentences can be put in order by what their words are; the paper's are longer",
    )


ITEM = Item("Table 3: relative positions in values and keys", (GRID,), build)
