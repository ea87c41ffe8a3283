"""Table 1: the corpora. Nothing is trained for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapeshift.data.config import SPLITS
from shapeshift.errors import ShapeshiftError
from shapeshift.papers.document import DocumentTable, Finding, Verdict
from shapeshift.papers.entries import counted, missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "nhk-table1"

PUBLISHED = {
    "fr-de": (17_975_604, 1_026, 2_006),
    "de-fr": (17_575_004, 1_000, 1_984),
    "ja-en": (33_875_119, 1_005, 2_008),
    "en-ja": (33_073_119, 1_000, 2_037),
}
"""Direction → sentences for training, development and test."""

HEADER = ("direction", "train", "development", "test")


TOLERANCE = 0.02
"""Largest deviation from the paper's counts: the paper does not say which pairs it left out."""

Counts = Sequence[int]
"""Sentences of `SPLITS`."""


def build(study: Study) -> Content:
    """Make our table and the paper's, and check the counts."""
    rows, problems, found = [], [], {}
    for languages in study.settings(GRID, "languages"):
        cell = study.cells(GRID, {"languages": languages})[0]
        try:
            data = study.prepared(cell)
        except ShapeshiftError as error:  # paper scale without the text
            rows.append((*words(languages), *(missing() for _ in SPLITS)))
            problems.append(f"{languages}: {error}")
            continue
        found[languages] = [data.report.splits[split].read for split in SPLITS]
        rows.append((*words(languages), *(counted(n, data, cell) for n in found[languages])))
    ours = DocumentTable(
        name="table1",
        title="Sentences in our corpora",
        header=HEADER,
        rows=tuple(rows),
        notes=("sentence pairs", *problems),
    )
    return Content(
        tables=[ours, published()],
        findings=[_finding(study, found, problems)],
        lacks_text=bool(problems),
    )


def judge(found: Mapping[str, Counts]) -> Verdict:
    """Return whether all corpora of the paper have as many sentences as there, in one of its two
    readings, to `TOLERANCE`.

    Args:
        found: direction → our counts; without all four, nothing is supported.
    """
    for pair in (("fr-de", "de-fr"), ("ja-en", "en-ja")):
        for direction in filter(found.__contains__, pair):
            close = (
                all(
                    abs(n - expected) <= TOLERANCE * expected
                    for n, expected in zip(found[direction], PUBLISHED[reading], strict=True)
                )
                for reading in pair
            )
            if not any(close):
                return "contradicted"
    return "supported" if found.keys() == PUBLISHED.keys() else "not run"


def _finding(study: Study, found: Mapping[str, Counts], problems: Sequence[str]) -> Finding:
    counted = "; ".join(
        f"{direction} {', '.join(f'{n:,}' for n in counts)}" for direction, counts in found.items()
    )
    measured = [f"{counted}. As many: within {TOLERANCE:.0%}"] if counted else []
    tested = study.scale == "paper"
    return Finding(
        claim="The corpora have as many sentences for training, development and test as the"
        " paper's.",
        verdict=judge(found) if tested else "not tested at this scale",
        measured=". ".join([*measured, *problems]),
        paper="17,975,604, 1,026 and 2,006 of French-German; 33,875,119, 1,005 and 2,008 of"
        " Japanese-English",
    )


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table1-paper",
        title="Sentences in the paper's corpora",
        origin="paper",
        header=HEADER,
        rows=tuple(
            (*words(languages), *(number(count, ",") for count in counts))
            for languages, counts in PUBLISHED.items()
        ),
        notes=(
            "the paper has one number for both directions of a pair of languages; the text that"
            " this was copied from has it in two readings, and both are kept",
        ),
    )


ITEM = Item("Table 1: the corpora", (GRID,), build, trained=False)
