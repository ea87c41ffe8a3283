"""The items that were reproduced, found below a folder and put in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from shapeshift._system.errors import ShapeshiftError
from shapeshift.study.catalogue import PAPERS
from shapeshift.study.document import FILE, Finding, ItemDocument, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SCALES = ("tiny", "small", "paper")


@dataclass(frozen=True)
class ReportItem:
    """An item at one scale.

    Attributes:
        document: its results.
        directory: where its files are.
        anchor: its place on the page.
    """

    document: ItemDocument
    directory: Path
    anchor: str


@dataclass(frozen=True)
class ReportPaper:
    """A paper, and its items in the paper's order, each from the smallest scale up.

    Attributes:
        name: as in `shapeshift reproduce NAME`.
        title: for people.
        citation: authors, year, title, venue; of studies, their files.
        items: what was reproduced.
    """

    name: str
    title: str
    citation: str
    items: tuple[ReportItem, ...]


def collect(directory: Path) -> list[ReportPaper]:
    """Return the papers that have an item below a folder: ours in the catalogue's order, then
    others by name.

    Raises:
        ShapeshiftError: no such folder, no item in it, or a file that is not an item's document.
    """
    if not directory.is_dir():
        raise ShapeshiftError(
            "no such folder; name the one that `shapeshift reproduce` or `compare` wrote to",
            path=directory,
        )
    items: list[ReportItem] = []
    for path in sorted(directory.rglob(FILE)):
        document = ItemDocument.load(path)
        words = ("item", document.paper, document.item, document.labelled_scale)
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(words)).strip("-").lower()
        if any(item.anchor == anchor for item in items):
            anchor += f"-{len(items)}"
        items.append(ReportItem(document, path.parent, anchor))
    if not items:
        raise ShapeshiftError(
            f"no {FILE} in it or below; run `shapeshift reproduce PAPER` first", path=directory
        )
    names = {item.document.paper for item in items}
    return [_paper(name, items) for name in sorted(names, key=lambda x: (_rank(x, [*PAPERS]), x))]


def count(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Return how many findings have each verdict that some have."""
    counts = Counter(finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def _paper(name: str, items: Iterable[ReportItem]) -> ReportPaper:
    known = PAPERS.get(name, {"title": name.capitalize(), "items": []})
    own = sorted(
        (item for item in items if item.document.paper == name),
        key=lambda item: (
            _rank(item.document.item, known["items"]),
            item.document.item,
            _rank(item.document.scale, SCALES),
            item.document.labelled_scale,
        ),
    )
    citation = "; ".join(dict.fromkeys(item.document.citation for item in own))
    return ReportPaper(name, known["title"], citation, tuple(own))


def _rank(name: str, order: Sequence[str]) -> int:
    """Return the place of a name in an order; those that are not in it come last."""
    return order.index(name) if name in order else len(order)
