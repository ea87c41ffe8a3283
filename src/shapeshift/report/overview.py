"""The head of the page: how many claims hold, every finding in one table, every item in another."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shapeshift.report.collect import (
    VERDICTS,
    ReportItem,
    ReportPaper,
    count,
    findings,
)
from shapeshift.report.items import verdict_mark
from shapeshift.report.markup import Html, element, joined
from shapeshift.report.tables import Field, sortable

_LONG = 160
"""Characters of a finding in the table of all; its item has them all."""


def overview(papers: Sequence[ReportPaper]) -> Html:
    """Return counts, findings and items of all papers."""
    return joined([_counts(papers), _all_findings(papers), _all_items(papers)])


def _counts(papers: Sequence[ReportPaper]) -> Html:
    items = [item for paper in papers for item in paper.items]
    counts = count(finding for _, finding in findings(items))
    boxes = [
        element(
            "div",
            element("dt", verdict),
            element("dd", str(number)),
            class_=verdict.replace(" ", "-"),
        )
        for verdict, number in counts.items()
    ]
    versions = ", ".join(sorted({item.document.version for item in items}))
    lead = element(
        "p",
        f"{_number(len(items), 'item')} of {_number(len(papers), 'paper')}, made with Shapeshift"
        f" {versions}; the last on ",
        _date(max(item.document.time for item in items)),
        ". Each number of ours is a button that shows where it is from, but for those that name"
        " rows, such as updates.",
        class_="lead",
    )
    return joined([lead, element("dl", *boxes, class_="counts")])


def _all_findings(papers: Sequence[ReportPaper]) -> Html:
    rows = [
        [
            Field(element("a", finding.claim, href=f"#{item.anchor}")),
            Field(verdict_mark(finding), VERDICTS.index(finding.verdict)),
            Field(_folded(finding.measured)),
            Field(_folded(finding.paper)),
            Field(element("span", paper.title, " ", element("code", item.document.item))),
            Field(item.document.labelled_scale),
        ]
        for paper in papers
        for item, finding in findings(paper.items)
    ]
    header = ("Claim", "Verdict", "Measured", "In the paper", "Item", "Scale")
    table = (
        sortable(header, rows, "findings-title", "cards")
        if rows
        else element("p", "None of the items has findings yet.")
    )
    return element("section", element("h2", "Findings", id="findings-title"), table, id="findings")


def _all_items(papers: Sequence[ReportPaper]) -> Html:
    rows = [_item_row(paper, item) for paper in papers for item in paper.items]
    header = ("Item", "Paper", "Scale", "Findings", "Finished runs", "Made")
    return element(
        "section",
        element("h2", "Items", id="items-title"),
        sortable(header, rows, "items-title", "cards"),
        id="items",
    )


def _item_row(paper: ReportPaper, item: ReportItem) -> list[Field]:
    document = item.document
    counts = count(document.findings)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    finished = len(document.configs)
    total = finished + len(document.unfinished)
    runs = f"{finished} of {total}"
    if finished and document.seeds == ():
        runs = "no runs needed"
    return [
        Field(element("a", document.title, href=f"#{item.anchor}")),
        Field(paper.title),
        Field(document.labelled_scale),
        Field(said or "–", counts.get("supported", 0) if said else None),
        Field(runs, finished / total if total else 0.0),
        Field(_date(document.time)),
    ]


def _folded(text: str) -> str:
    """Return text; if it is long its beginning, with the whole to unfold."""
    beginning = textwrap.shorten(text, _LONG, placeholder=" …")
    if len(text) <= _LONG:
        return text
    return element("details", element("summary", beginning), text, class_="more")


def _date(time: str) -> Html:
    return element("time", time.partition("T")[0], datetime=time)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
