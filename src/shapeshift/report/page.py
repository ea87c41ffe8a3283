"""The page as a whole: one file of HTML with its styles, script and figures inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from shapeshift.report.collect import ReportPaper
from shapeshift.report.items import paper_section
from shapeshift.report.markup import Anchors, Html, element, joined
from shapeshift.report.overview import overview
from shapeshift.report.sources import Context, Sources

TITLE = "Shapeshift: what was reproduced"


def page(papers: Sequence[ReportPaper], root: Path) -> str:
    """Return the page of all that was reproduced.

    It asks the network for nothing, and its own policy forbids it to: nothing that stands in a
    title, a setting or a figure can run or load anything.

    Args:
        papers: from `collect.collect`.
        root: folder that the page will be in; links to files are relative to it.
    """
    anchors = Anchors()
    context = Context(root, anchors, Sources(anchors))
    sections = [(anchors.new("paper", paper.name), paper) for paper in papers]
    body = joined(paper_section(paper, anchor, context) for anchor, paper in sections)
    main = element(
        "main",
        element("h1", TITLE),
        overview(papers),
        body,
        _appendix(context.sources),
        id="main",
    )
    content = element(
        "body",
        element("a", "Skip to the content", href="#main", class_="skip"),
        element("div", _contents(sections), main, class_="page"),
    )
    return f"<!doctype html>\n{element('html', _head(), content, lang='en')}\n"


def _head() -> Html:
    assets = files("shapeshift.report")
    style, script = (Html((assets / name).read_text("utf-8")) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", TITLE),
        element("style", style),
        element("script", script),
    )


def _contents(sections: Sequence[tuple[str, ReportPaper]]) -> Html:
    entries = [_entry("findings", "Findings"), _entry("items", "Items")]
    for anchor, paper in sections:
        own = [
            _entry(item.anchor, item.document.title, item.document.labelled_scale)
            for item in paper.items
        ]
        entries.append(
            element("li", element("a", paper.title, href=f"#{anchor}"), element("ul", *own))
        )
    entries.append(_entry("runs", "Settings of the runs"))
    # Open for those without a script; with one it is closed on a narrow screen.
    return element(
        "nav",
        element(
            "details",
            element("summary", "Contents"),
            element("ul", *entries),
            open=True,
            class_="toc",
        ),
        aria_label="Contents",
    )


def _entry(anchor: str, text: str, scale: str | None = None) -> Html:
    mark = element("span", scale, class_="scale") if scale else None
    return element("li", element("a", text, " " if scale else None, mark, href=f"#{anchor}"))


def _appendix(sources: Sources) -> Html:
    """Return settings, and the sources: hidden on a screen, listed on paper."""
    return joined(
        [
            element(
                "section",
                element("h2", "Settings of the runs"),
                element("p", "Every setting of each run, by the key that names it."),
                sources.runs(),
                id="runs",
            ),
            element(
                "section",
                element("h2", "Where the numbers are from"),
                sources.popovers(),
                id="sources",
            ),
        ]
    )
