"""Table 1: the corpora. Nothing is trained for it."""

from __future__ import annotations

from shapeshift.data.config import SPLITS
from shapeshift.data.prepare import Report
from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.grid import Cell
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study, missing, number, words

GRID = "nhk-table1"

PUBLISHED = {
    "fr-de": (17_975_604, 1_026, 2_006),
    "de-fr": (17_575_004, 1_000, 1_984),
    "ja-en": (33_875_119, 1_005, 2_008),
    "en-ja": (33_073_119, 1_000, 2_037),
}
"""Direction → sentences for training, development and test."""

HEADER = ("direction", "train", "development", "test")


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    rows, notes = [], ["sentence pairs"]
    for languages in study.settings(GRID, "languages"):
        cell = study.cells(GRID, {"languages": languages})[0]
        try:
            counts = _counts(study.prepared(cell).report, cell)
        except ShapeshiftError as error:  # paper scale without the text
            counts = (missing(), missing(), missing())
            notes.append(f"{languages}: {error}")
        rows.append((*words(languages), *counts))
    ours = DocumentTable(
        name="table1",
        title="Sentences in our corpora",
        header=HEADER,
        rows=tuple(rows),
        notes=tuple(notes),
    )
    return Content(tables=[ours, published()])


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


def _counts(report: Report, cell: Cell) -> tuple[Entry, ...]:
    return tuple(number(report.splits[split].read, ",", [cell]) for split in SPLITS)


ITEM = Item("Table 1: the corpora", (GRID,), build, trained=False)
