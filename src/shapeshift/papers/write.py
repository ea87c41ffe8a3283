"""An item's document as files: `item.json`, tables as Markdown, LaTeX and CSV, figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from shapeshift.disk import save
from shapeshift.evaluation.tables import Table
from shapeshift.lab.figures import save as save_figure
from shapeshift.lab.results import csv_text
from shapeshift.papers.document import DocumentTable, ItemDocument
from shapeshift.papers.item import Figure

_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "–": "--",
    "…": r"\dots{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
} | {sign: rf"\{sign}" for sign in "&%$#_{}"}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def write_item(document: ItemDocument, figures: Iterable[Figure], directory: Path) -> list[Path]:
    """Write everything into a folder and return the files, the document last: where it is, the
    rest is.

    Raises:
        ShapeshiftError: a file cannot be written.
    """
    paths = []
    for table in document.tables:
        texts = {"md": markdown(table), "tex": latex(table), "csv": comma_separated(table)}
        for suffix, text in texts.items():
            paths.append(directory / f"{table.name}.{suffix}")
            save(paths[-1], text)
    for figure in figures:
        paths += save_figure(figure.drawing, directory / figure.about.name)
    return [*paths, document.save(directory)]


def text_table(table: DocumentTable) -> Table:
    """Return a table of texts alone, for the terminal."""
    return Table(table.header, [[entry.text for entry in row] for row in table.rows], table.notes)


def markdown(table: DocumentTable) -> str:
    """Return a table in Markdown, its title above it."""
    return f"**{table.title}**\n\n{text_table(table).markdown()}"


def latex(table: DocumentTable) -> str:
    """Return a table in LaTeX, for the package `booktabs`: the first column left, the others
    right."""
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        _latex_row(table.header),
        r"\midrule",
        *(_latex_row([entry.text for entry in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{escape_latex(' '.join((table.title + '.', *_sentences(table.notes))))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape_latex(text: str) -> str:
    """Return text as LaTeX shows it: special characters and the signs of our tables spelled out."""
    return _SPECIAL.sub(lambda match: _LATEX[match.group()], text)


def comma_separated(table: DocumentTable) -> str:
    """Return a table as CSV: numbers in full, words as they are shown."""
    rows = [[x.text if x.value is None else x.value for x in row] for row in table.rows]
    return csv_text([table.header, *rows])


def _latex_row(texts: Iterable[str]) -> str:
    return " & ".join(map(escape_latex, texts)) + r" \\"


def _sentences(notes: Iterable[str]) -> list[str]:
    return [note if note.endswith(".") else note + "." for note in notes]
