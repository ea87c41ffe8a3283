"""Writes a study's document as files: `study.json`, tables in Markdown, LaTeX and CSV, figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shapeshift._system.files import save
from shapeshift.evaluation.tables import Table
from shapeshift.study.document import DocumentTable, StudyDocument
from shapeshift.study.figures import save as save_figure
from shapeshift.study.results import csv_text

_SIGNS = str.maketrans(
    {"≥": r"$\geq$", "≤": r"$\leq$", "−": "$-$", "→": r"$\to$", "<": "$<$", ">": "$>$"}
)
"""Signs of our tables that LaTeX does not know as text."""

_SPECIAL = str.maketrans(
    {sign: rf"\{sign}" for sign in "&%$#_{}"}
    | {"~": r"\textasciitilde ", "^": r"\textasciicircum ", "\\": r"\textbackslash "}
)
"""Signs that mean something in LaTeX."""


def write_study(document: StudyDocument, directory: Path) -> list[Path]:
    """Write everything into a folder and return the files. The document is written last, so that
    its presence means that all files are complete.

    Raises:
        ShapeshiftError: a file cannot be written.
    """
    paths = []
    for table in document.tables:
        for suffix, text in _SUFFIXES.items():
            paths.append(directory / f"{table.name}.{suffix}")
            save(paths[-1], text(table))
        if table.figure:
            paths += save_figure(table.drawing, directory / table.name)
    return [*paths, document.save(directory)]


def text_table(table: DocumentTable) -> Table:
    """Return a table as plain text, for the terminal."""
    return Table(table.header, [[entry.text for entry in row] for row in table.rows], table.notes)


def markdown(table: DocumentTable) -> str:
    """Return a table in Markdown, below its title."""
    return f"**{table.title}**\n\n{text_table(table).markdown()}"


def latex(table: DocumentTable) -> str:
    """Return a table as a `tabular` in LaTeX, for the package `booktabs`, its notes below."""
    import pandas as pd

    texts = [[entry.text for entry in row] for row in table.rows]
    frame = pd.DataFrame(texts, columns=[*table.header])
    form = "l" + "r" * (len(table.header) - 1)
    tabular = str(frame.to_latex(index=False, escape=True, column_format=form))
    notes = [rf"\par{{\footnotesize {note.translate(_SPECIAL)}\par}}" for note in table.notes]
    return "\n".join([tabular.rstrip(), *notes, ""]).translate(_SIGNS)


def comma_separated(table: DocumentTable) -> str:
    """Return a table as CSV: numbers in full, words as they are shown; behind each column with
    tests, `TITLE`, one of their p-values, `TITLE, p`; in a last column the overrides of the runs,
    if there are any."""
    columns: list[list[object]] = []
    for number, title in enumerate(table.header):
        entries = [row[number] for row in table.rows]
        columns.append([title, *(x.text if x.value is None else x.value for x in entries)])
        if any(entry.p_value is not None for entry in entries):
            columns.append([f"{title}, p", *(entry.p_value for entry in entries)])
    if table.overrides:
        columns.append(["overrides", *[" ".join(table.overrides)] * len(table.rows)])
    return csv_text(zip(*columns, strict=True))


_SUFFIXES: dict[str, Callable[[DocumentTable], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}
"""Of the files of a table → what makes their text."""
