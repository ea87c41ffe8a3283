"""The page as a whole: one file of HTML with its styles, script and figures inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from shapeshift._system.files import read, replacing
from shapeshift.study.document import FILE, DocumentTable
from shapeshift.study.report.collect import VERDICTS, ReportPaper, ReportStudy, collect, count
from shapeshift.study.verdicts import shown

PAGE = "report.html"
"""Name of the page, unless the user gives another one."""

_FILE_KINDS = {"md": "Markdown", "tex": "LaTeX"}
"""Ending of a file's name → what people call it; the others are called by it."""


def write_page(directory: Path, path: Path) -> list[ReportPaper]:
    """Write the page of all studies below a folder, and return them.

    Raises:
        ShapeshiftError: there is no study, or one that cannot be read.
    """
    papers = collect(directory)
    text = page(papers, path.parent)
    with replacing(path) as stream:
        stream.write(text)
    return papers


def page(papers: Sequence[ReportPaper], root: Path) -> str:
    """Return the page of all that was reproduced.

    It asks the network for nothing, and its own policy forbids it to: nothing that stands in a
    title, a setting or a figure can run or load anything.
    """
    script = asset("page.js")
    documents = [study.document for paper in papers for study in paper.studies]
    return render(
        "page.html",
        style=asset("page.css"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        papers=[(paper, [_study(study, root) for study in paper.studies]) for paper in papers],
        documents=documents,
        count=count,
        counts=count(finding for document in documents for finding in document.findings),
        verdicts=VERDICTS,
    )


def asset(name: str) -> str:
    """Return a file of this package."""
    return (files("shapeshift.study.report") / name).read_text("utf-8")


def render(template: str, **variables: Any) -> str:
    """Render a template of this package. Text is escaped, and a missing variable is an error."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["p_value"] = shown
    environment.filters["code"] = _code
    return environment.from_string(asset(template)).render(**variables)


def _code(text: str) -> Markup:
    """Return text in which `…` is code, as in Markdown."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _study(study: ReportStudy, root: Path) -> dict[str, Any]:
    """Return the template's data for a study. Each of `blocks` is shown side by side: one of our
    tables with the paper's table that it is compared with, or, if we have only one table, with all
    tables of the paper."""
    document = study.document
    ours = [table for table in document.tables if table.origin == "ours"]
    papers = [table for table in document.tables if table.origin == "paper"]
    blocks = []
    for table in ours:
        compared = [x for x in papers if len(ours) == 1 or x.name == f"{table.name}-paper"]
        papers = [paper for paper in papers if paper not in compared]
        own = _table(study, table, root) | {"compared": bool(compared)}
        blocks.append([own, *(_table(study, each, root) for each in compared)])
    return {
        "anchor": study.anchor,
        "document": document,
        "blocks": blocks + [[_table(study, table, root)] for table in papers],
        "compared": any(table.origin == "paper" for table in document.tables),
        "files": _files([study.directory / FILE, study.directory / "results.csv"], root),
    }


def _table(study: ReportStudy, table: DocumentTable, root: Path) -> dict[str, Any]:
    stem = study.directory / table.name
    image, width = _image(Path(f"{stem}.svg")) if table.figure else ("", "")
    return {
        "anchor": f"{study.anchor}-table-{study.document.tables.index(table)}",
        "table": table,
        "files": _files([f"{stem}.{kind}" for kind in ("md", "tex", "csv")], root),
        "compared": False,
        "image": image,
        "width": width,
        "figure_files": _files([f"{stem}.{kind}" for kind in ("svg", "pdf", "png")], root),
    }


def _files(paths: Iterable[str | Path], root: Path) -> list[tuple[str, str]]:
    """Return kind and link of each existing file."""
    links = []
    for path in filter(Path.is_file, map(Path, paths)):
        ending = path.suffix[1:]
        link = quote(Path(os.path.relpath(path, root)).as_posix())
        links.append((_FILE_KINDS.get(ending, ending.upper()), link))
    return links


def _image(path: Path) -> tuple[str, str]:
    """Return an SVG file as an image source, in which nothing can run or reach the network, and its
    width; empty if the file is missing or damaged."""
    try:
        content = read(path)
        root = ElementTree.fromstring(content)
    except (OSError, ElementTree.ParseError):
        return "", ""
    if root.tag != "{http://www.w3.org/2000/svg}svg":
        return "", ""
    # The page scales the figure from its own width, so that text has one size in all of them.
    width = re.fullmatch(r"[\d.]+(pt|px|in|mm|cm)", root.get("width", ""))
    image = base64.b64encode(content).decode()
    return f"data:image/svg+xml;base64,{image}", width[0] if width else ""
