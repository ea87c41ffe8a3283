"""The page as a whole: one file of HTML with its styles, script and figures inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from shapeshift.disk import replacing
from shapeshift.papers.verdicts import shown
from shapeshift.report.collect import ReportPaper, collect
from shapeshift.report.view import view

PAGE = "report.html"
"""Name of the page, unless the user gives another one."""


def write_page(directory: Path, path: Path) -> list[ReportPaper]:
    """Write the page of all items below a folder, and return them.

    Raises:
        ShapeshiftError: there is no item, or one that cannot be read.
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
    return render(
        "page.html",
        style=asset("page.css"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **view(papers, root),
    )


def asset(name: str) -> str:
    """Return a file of this package."""
    return (files("shapeshift.report") / name).read_text("utf-8")


def render(template: str, **variables: Any) -> str:
    """Return what a template of this package makes of some variables; text is escaped, and a
    variable that is missing is an error."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["p_value"] = shown
    return environment.from_string(asset(template)).render(**variables)
