"""What the page shows, as plain data for its template."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from shapeshift.lab.results import Row
from shapeshift.papers.document import FILE, DocumentFigure, DocumentTable, Entry, ItemDocument
from shapeshift.papers.verdicts import shown
from shapeshift.report.collect import (
    VERDICTS,
    Anchors,
    ReportItem,
    ReportPaper,
    count,
    findings,
)

_FILE_KINDS = {"md": "Markdown", "tex": "LaTeX"}
"""Ending of a file's name → what people call it; the others are called by it."""


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Attributes:
        text: what it shows.
        value: what it is sorted by; `None` for its text.
        is_number: to stand on the right.
        source: the place that shows where a number is from.
        href: of a link.
        code: what stands behind the text, as code.
        verdict: whether the text is one.
    """

    text: str
    value: float | None = None
    is_number: bool = False
    source: str = ""
    href: str = ""
    code: str = ""
    verdict: bool = False


class View:
    """Makes what the template needs; names places and gathers sources on the way."""

    def __init__(self, papers: Sequence[ReportPaper], root: Path):
        self._papers, self._root = papers, root
        self._anchors = Anchors()
        self._sources: list[dict[str, Any]] = []
        self._runs: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def content(self) -> dict[str, Any]:
        """Return the variables of the template."""
        papers = [self._paper(paper) for paper in self._papers]
        items = [item for paper in self._papers for item in paper.items]
        return {
            "papers": papers,
            "versions": ", ".join(sorted({item.document.version for item in items})),
            "last": max(item.document.time for item in items),
            "counts": count(finding for _, finding in findings(items)),
            "findings": [
                [
                    Field(finding.claim, href=f"#{item.anchor}"),
                    Field(finding.verdict, VERDICTS.index(finding.verdict), verdict=True),
                    Field(finding.measured),
                    Field(finding.paper),
                    Field(paper.title, code=item.document.item),
                    Field(item.document.labelled_scale),
                ]
                for paper in self._papers
                for item, finding in findings(paper.items)
            ],
            "items": [_item_row(paper, item) for paper in self._papers for item in paper.items],
            "sources": self._sources,
            "runs": [
                {"key": key, "settings": text, "anchor": anchor, "name": self._names.get(key, "")}
                for (key, text), anchor in self._runs.items()
            ],
        }

    def _paper(self, paper: ReportPaper) -> dict[str, Any]:
        return {
            "anchor": self._anchors.new("paper", paper.name),
            "title": paper.title,
            "citation": paper.citation,
            "entries": [self._item(item) for item in paper.items],
        }

    def _item(self, item: ReportItem) -> dict[str, Any]:
        document = item.document
        for key in document.configs:
            self._run(document, key)
        for row in document.measurements:
            axes = [f"{axis} {setting}" for axis, setting in row.axes.items()]
            name = ", ".join([row.grid, *axes, f"seed {row.seed}", row.scale])
            self._names.setdefault(row.cell, name)
        return {
            "anchor": item.anchor,
            "document": document,
            "blocks": self._blocks(item),
            "compared": any(table.origin == "paper" for table in document.tables),
            "files": self._files([item.directory / FILE, item.directory / "results.csv"]),
        }

    def _blocks(self, item: ReportItem) -> list[list[dict[str, Any]]]:
        """Return what stands side by side: each of ours with the paper's table that it is compared
        with; if there is but one of ours, with all of the paper's."""
        ours = [table for table in item.document.tables if table.origin == "ours"]
        papers = [table for table in item.document.tables if table.origin == "paper"]
        blocks = []
        for table in ours:
            compared = [x for x in papers if len(ours) == 1 or x.name == f"{table.name}-paper"]
            papers = [paper for paper in papers if paper not in compared]
            figures = [figure for figure in item.document.figures if figure.table == table.name]
            own = self._table(item, table, figures, bool(compared))
            blocks.append([own, *(self._table(item, each) for each in compared)])
        return blocks + [[self._table(item, table)] for table in papers]

    def _table(
        self,
        item: ReportItem,
        table: DocumentTable,
        figures: Sequence[DocumentFigure] = (),
        compared: bool = False,
    ) -> dict[str, Any]:
        paths = [item.directory / f"{table.name}.{kind}" for kind in ("md", "tex", "csv")]
        return {
            "anchor": self._anchors.new("table", item.anchor, table.name),
            "table": table,
            "rows": [
                [
                    self._field(item.document, f"{table.title}: {_row_name(row)}, {title}", entry)
                    for title, entry in zip(table.header, row, strict=True)
                ]
                for row in table.rows
            ],
            "files": self._files(paths),
            "compared": compared,
            "figures": [self._figure(item, x, not place) for place, x in enumerate(figures)],
        }

    def _figure(self, item: ReportItem, figure: DocumentFigure, is_first: bool) -> dict[str, Any]:
        kinds = [item.directory / f"{figure.name}.{kind}" for kind in ("svg", "pdf", "png")]
        image, width = _image(kinds[0])
        return {
            "anchor": self._anchors.new("figure", item.anchor, figure.name),
            "about": figure,
            "image": image,
            "width": width,
            "files": self._files(kinds),
            "is_first": is_first,
        }

    def _field(self, document: ItemDocument, title: str, entry: Entry) -> Field:
        """Return a field, which opens its source if we know it."""
        is_number = entry.value is not None
        if not entry.rows and not entry.cells:
            return Field(entry.text, entry.value, is_number)
        anchor = self._anchors.new("source", document.paper, document.item, document.labelled_scale)
        rows = [document.measurements[number] for number in entry.rows]
        computed = [self._run(document, key) for key in entry.cells]
        if not entry.data:
            for run in computed:
                own = [
                    x for x in document.measurements if x.cell == run["key"] and x.is_corpus_bleu
                ]
                run["measured"] = self._measured(document, own) if own else None
        measured = self._measured(document, rows) if rows else None
        source = {"anchor": anchor, "title": title, "text": entry.text, "measured": measured}
        source["test"] = "" if entry.p_value is None else shown(entry.p_value)
        self._sources.append(source | {"data": entry.data, "computed": computed})
        return Field(entry.text, entry.value, is_number, source=anchor)

    def _measured(self, document: ItemDocument, rows: Sequence[Row]) -> dict[str, Any]:
        """Return what measurements share, then each with what is its own."""
        fields = []
        for row in rows:
            anchor = self._run(document, row.cell)["anchor"]
            run = {"text": row.cell, "is_code": True, "href": f"#{anchor}" if anchor else ""}
            fields.append(_fields(row) | {"run": run})
        names = dict.fromkeys(name for each in fields for name in each)
        shared = [name for name in names if all(x.get(name) == fields[0].get(name) for x in fields)]
        return {
            "shared": [(name, fields[0][name]) for name in shared],
            "own": [
                {
                    "seed": row.seed,
                    "value": repr(row.value),
                    "fields": [(name, each[name]) for name in each if name not in shared],
                }
                for row, each in zip(rows, fields, strict=True)
            ],
        }

    def _run(self, document: ItemDocument, key: str) -> dict[str, Any]:
        """Return a run's key, and the place of its settings if the document has them."""
        settings = document.configs.get(key)
        if settings is None:
            return {"key": key, "anchor": ""}
        if (key, settings) not in self._runs:
            self._runs[key, settings] = self._anchors.new("run", key)
        return {"key": key, "anchor": self._runs[key, settings]}

    def _files(self, paths: Iterable[Path]) -> list[tuple[str, str]]:
        """Return kind and link of those files that are there."""
        links = []
        for path in filter(Path.is_file, paths):
            ending = path.suffix[1:]
            link = quote(Path(os.path.relpath(path, self._root)).as_posix())
            links.append((_FILE_KINDS.get(ending, ending.upper()), link))
        return links


def _item_row(paper: ReportPaper, item: ReportItem) -> list[Field]:
    document = item.document
    counts = count(document.findings)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    finished = len(document.configs)
    total = finished + len(document.unfinished)
    needs_none = finished and document.seeds == ()
    return [
        Field(document.title, href=f"#{item.anchor}"),
        Field(paper.title),
        Field(document.labelled_scale),
        Field(said or "–", counts.get("supported", 0) if said else None),
        Field(
            "no runs needed" if needs_none else f"{finished} of {total}",
            finished / total if total else 0.0,
        ),
        Field(document.time.partition("T")[0]),
    ]


def _row_name(row: Sequence[Entry]) -> str:
    """Return the words that a row begins with."""
    words: list[str] = []
    for entry in row:
        if words and (entry.value is not None or entry.rows or entry.cells):
            break
        words.append(entry.text)
    return ", ".join(words)


def _fields(row: Row) -> dict[str, dict[str, str | bool]]:
    code = {
        "signature": row.signature,
        "hypotheses, SHA-256": row.hypotheses,
        "references, SHA-256": row.references,
        "weights, SHA-256": row.checkpoint,
        "command": row.command,
    }
    given = {
        "metric": row.metric,
        "measured on": row.dataset,
        "part": row.bucket,
        "update": None if row.step is None else str(row.step),
        **row.axes,
        "grid": row.grid,
        "scale": row.scale,
        "measure": row.measure,
        **code,
        "version": row.version,
        "time": row.time,
        "hardware": row.hardware,
    }
    return {
        name: {"text": text, "is_code": name in code, "href": ""}
        for name, text in given.items()
        if text
    }


def _image(path: Path) -> tuple[str, str]:
    """Return an SVG file as the source of an image, in which nothing can run or reach the network,
    and its width; empty if it is missing or damaged."""
    try:
        content = path.read_bytes()
        root = ElementTree.fromstring(content)
    except (OSError, ElementTree.ParseError):
        return "", ""
    if root.tag != "{http://www.w3.org/2000/svg}svg":
        return "", ""
    # The page scales the figure from its own width, so that text has one size in all of them.
    width = re.fullmatch(r"[\d.]+(pt|px|in|mm|cm)", root.get("width", ""))
    image = base64.b64encode(content).decode()
    return f"data:image/svg+xml;base64,{image}", width[0] if width else ""
