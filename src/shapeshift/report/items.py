"""A paper and its items: ours beside the paper's, then what they say about its claims."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

from shapeshift.papers.document import FILE, DocumentFigure, DocumentTable, Finding
from shapeshift.report.collect import ReportItem, ReportPaper
from shapeshift.report.markup import Html, element, joined
from shapeshift.report.sources import Context, definitions
from shapeshift.report.tables import document_table, files, title

_MARKS = {"supported": "✓", "contradicted": "✗", "inconclusive": "?"}
"""Of verdicts that a test has led to; the others have a dash."""


def paper_section(paper: ReportPaper, anchor: str, context: Context) -> Html:
    """Return all items of a paper.

    Args:
        paper: what to show.
        anchor: its place on the page.
        context: of the page.
    """
    folders = dict.fromkeys(item.directory.parent for item in paper.items)
    tables = [folder / f"results.{kind}" for folder in folders for kind in ("csv", "parquet")]
    return element(
        "section",
        element("h2", paper.title),
        element("p", paper.citation, class_="citation"),
        files(f"all measurements of {paper.title}", tables, context.root),
        *(ItemView(item, context).article() for item in paper.items),
        id=anchor,
    )


def verdict_mark(finding: Finding) -> Html:
    """Return a verdict as a sign and words."""
    return element(
        "span",
        element("span", _MARKS.get(finding.verdict, "–"), aria_hidden="true"),
        f" {finding.verdict}",
        class_=f"verdict {finding.verdict.replace(' ', '-')}",
    )


class ItemView:
    """Makes the article of an item.

    Args:
        item: what to show.
        context: of the page.
    """

    def __init__(self, item: ReportItem, context: Context):
        self._item, self._context = item, context
        self._document = item.document

    def article(self) -> Html:
        """Return tables, figures, findings, and how the item was made."""
        document = self._document
        self._context.sources.add_runs(document)
        heading = element(
            "h3", document.title, " ", element("span", document.labelled_scale, class_="scale")
        )
        return element(
            "article",
            heading,
            *(element("div", *blocks, class_="beside") for blocks in self._blocks()),
            self._findings(),
            self._unfinished(),
            self._made(),
            id=self._item.anchor,
        )

    def _blocks(self) -> list[list[Html]]:
        """Return what stands side by side: each of ours with the paper's table of that name and
        `-paper` behind it; if there is but one of ours, with all of the paper's."""
        ours = [table for table in self._document.tables if table.origin == "ours"]
        papers = [table for table in self._document.tables if table.origin == "paper"]
        rows = []
        for table in ours:
            beside = [
                paper for paper in papers if len(ours) == 1 or paper.name == f"{table.name}-paper"
            ]
            papers = [paper for paper in papers if paper not in beside]
            rows.append([*self._ours(table, bool(beside)), *map(self._table, beside)])
        return rows + [[self._table(table)] for table in papers]

    def _ours(self, table: DocumentTable, compared: bool) -> list[Html]:
        """Return the figures of a table's data, the table folded away below the first of them
        unless it is there to be compared; without figures, the table."""
        figures = [figure for figure in self._document.figures if figure.table == table.name]
        if not figures:
            return [self._table(table)]
        anchor = self._anchor("table", table.name)
        drawings = [self._drawing(figure) for figure in figures]
        numbers = element(
            "details",
            element("summary", "Show as a table"),
            document_table(self._item, table, anchor, self._context),
            open=compared or drawings[0] is None,
        )
        there = element("p", element("a", "Show as a table", href=f"#{anchor}"))
        return [
            self._figure(figure, drawing, there if place else numbers)
            for place, (figure, drawing) in enumerate(zip(figures, drawings, strict=True))
        ]

    def _table(self, table: DocumentTable) -> Html:
        anchor = self._anchor("table", table.name)
        content = document_table(self._item, table, anchor, self._context)
        return element("div", content, class_=f"block {table.origin}")

    def _anchor(self, kind: str, name: str) -> str:
        return self._context.anchors.new(kind, self._item.anchor, name)

    def _drawing(self, figure: DocumentFigure) -> Html | None:
        """Return what a figure shows, or `None` if its file is missing or damaged."""
        return _image(self._item.directory / f"{figure.name}.svg", figure.alt)

    def _figure(self, figure: DocumentFigure, drawing: Html | None, numbers: Html) -> Html:
        """Return a figure, and below it the way to its numbers."""
        anchor = self._anchor("figure", figure.name)
        if drawing is None:
            shown = element("p", f"The file {figure.name}.svg is missing or damaged. {figure.alt}")
        else:
            shown = element(
                "div",
                drawing,
                class_="scroll drawing",
                role="group",
                aria_labelledby=anchor,
                tabindex=0,
            )
        folder = self._item.directory
        kinds = [folder / f"{figure.name}.{kind}" for kind in ("svg", "pdf", "png")]
        return element(
            "div",
            title(anchor, figure.title, "Ours"),
            shown,
            files(figure.title, kinds, self._context.root),
            numbers,
            class_="block ours figure",
        )

    def _findings(self) -> Html | None:
        found = self._document.findings
        if not found:
            return None
        listed = [
            element(
                "li",
                element("p", verdict_mark(finding), " ", element("b", finding.claim)),
                definitions({"Measured": finding.measured, "In the paper": finding.paper}),
            )
            for finding in found
        ]
        return joined([element("h4", "Findings"), element("ul", *listed, class_="findings")])

    def _unfinished(self) -> Html | None:
        names = self._document.unfinished
        if not names:
            return None
        runs = "1 run is" if len(names) == 1 else f"{len(names)} runs are"
        return element(
            "details",
            element("summary", f"{runs} not finished, and not in these numbers"),
            element("ul", *(element("li", element("code", name)) for name in names)),
            class_="unfinished",
        )

    def _made(self) -> Html:
        document = self._document
        made = {
            "Command": element("code", document.command),
            "Version": f"Shapeshift {document.version}",
            "Made": element("time", document.time, datetime=document.time),
        }
        own = files(document.title, [self._item.directory / FILE], self._context.root)
        return element("footer", definitions(made), own)


def _image(path: Path, alt: str) -> Html | None:
    """Return an SVG file as an image, in which nothing can run or reach the network; `None` if it
    is missing or damaged."""
    try:
        content = path.read_bytes()
        root = ElementTree.fromstring(content)
    except (OSError, ElementTree.ParseError):
        return None
    if root.tag != "{http://www.w3.org/2000/svg}svg":
        return None
    # The page scales the figure from its own width, so that text has one size in all of them.
    width = re.fullmatch(r"[\d.]+(pt|px|in|mm|cm)", root.get("width", ""))
    return element(
        "img",
        src=f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}",
        alt=alt,
        style=f"--width: {width[0]}" if width else None,
    )
