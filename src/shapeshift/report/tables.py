"""Tables of the page: they can be sorted, scroll in frames of their own, and name their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.report.collect import ReportItem
from shapeshift.report.markup import Html, element, joined
from shapeshift.report.sources import Context

FILE_KINDS = {
    "md": "Markdown",
    "tex": "LaTeX",
    "csv": "CSV",
    "svg": "SVG",
    "png": "PNG",
    "pdf": "PDF",
    "json": "JSON",
    "parquet": "Parquet",
}


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Attributes:
        content: what it shows.
        value: what it is sorted by; `None` for its text.
        numeric: whether it is a number, to stand on the right.
    """

    content: str
    value: float | None = None
    numeric: bool = False


def sortable(
    header: Sequence[str], rows: Iterable[Sequence[Field]], label: str, class_: str = ""
) -> Html:
    """Return a table in a frame that scrolls when the table is wider.

    Roles are spelled out since a narrow screen shows some tables as cards, and then browsers
    forget what they are.

    Args:
        header: a title for each column.
        rows: each as long as `header`; the first field names the row.
        label: the element that holds the table's title.
        class_: of the table.
    """
    rows = list(rows)
    numeric = [_is_numeric([row[column] for row in rows]) for column in range(len(header))]
    head = element(
        "tr",
        *(
            element(
                "th", title, scope="col", role="columnheader", class_="right" if right else None
            )
            for title, right in zip(header, numeric, strict=True)
        ),
        role="row",
    )
    body = [_row(header, row, numeric) for row in rows]
    table = element(
        "table",
        element("thead", head, role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        class_=" ".join(filter(None, ["sortable", class_, "wide" if len(header) > 10 else ""])),
        role="table",
        aria_labelledby=label,
    )
    return element("div", table, class_="scroll", role="group", aria_labelledby=label, tabindex=0)


def document_table(item: ReportItem, table: DocumentTable, anchor: str, context: Context) -> Html:
    """Return a table of an item with its title, notes and files.

    Args:
        item: that it is from.
        table: what to show.
        anchor: its place on the page.
        context: of the page.
    """
    rows = []
    for row in table.rows:
        name = ", ".join(_words(row))
        rows.append(
            [
                Field(
                    context.sources.number(
                        item.document, f"{table.title}: {name}, {column}", entry
                    ),
                    entry.value,
                    numeric=entry.value is not None,
                )
                for column, entry in zip(table.header, row, strict=True)
            ]
        )
    return joined(
        [
            title(anchor, table.title, "Ours" if table.origin == "ours" else "The paper’s"),
            sortable(table.header, rows, anchor),
            notes(table.notes),
            files(
                table.title,
                [item.directory / f"{table.name}.{kind}" for kind in ("md", "tex", "csv")],
                context.root,
            ),
        ]
    )


def title(anchor: str, text: str, origin: str) -> Html:
    """Return the title of a table or figure, and whose it is."""
    return element(
        "p", element("span", origin, class_="origin"), " ", text, id=anchor, class_="title"
    )


def notes(lines: Sequence[str]) -> Html | None:
    """Return lines to stand below a table."""
    return (
        element("ul", *(element("li", line) for line in lines), class_="notes") if lines else None
    )


def files(about: str, paths: Iterable[Path], root: Path) -> Html | None:
    """Return links to those files that are there.

    Args:
        about: what the files hold.
        paths: of the files.
        root: folder of the page; links are relative to it.
    """
    links = [
        element(
            "a",
            FILE_KINDS[path.suffix[1:]],
            element("span", f" of {about}", class_="unseen"),
            href=quote(Path(os.path.relpath(path, root)).as_posix()),
        )
        for path in paths
        if path.is_file()
    ]
    return element("p", joined(links, " · "), class_="files") if links else None


def _row(header: Sequence[str], row: Sequence[Field], numeric: Sequence[bool]) -> Html:
    cells = [
        element(
            "td" if column else "th",
            field.content,
            scope=None if column else "row",
            role="cell" if column else "rowheader",
            class_="right" if numeric[column] else None,
            data_value=None if field.value is None else repr(field.value),
            data_label=header[column],
        )
        for column, field in enumerate(row)
    ]
    return element("tr", *cells, role="row")


def _is_numeric(column: Sequence[Field]) -> bool:
    """Return whether a column holds numbers, dashes among them or dashes alone."""
    return any(field.numeric for field in column) or all(
        field.content == NO_VALUE for field in column
    )


def _words(row: Sequence[Entry]) -> list[str]:
    """Return the words that a row begins with."""
    words: list[str] = []
    for entry in row:
        if words and (entry.value is not None or entry.rows or entry.cells):
            break
        words.append(entry.text)
    return words
