"""An item's document as files: `item.json`, tables as Markdown, LaTeX and CSV, figures."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

from shapeshift.analysis.style import save
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.tables import Table
from shapeshift.experiments.files import write_whole
from shapeshift.papers.document import DocumentTable, ItemDocument
from shapeshift.papers.item import Drawn

_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "†": r"$\dagger$",
    "–": "--",
    "…": r"\dots{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
} | {sign: rf"\{sign}" for sign in "&%$#_{}"}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def write_item(document: ItemDocument, figures: Iterable[Drawn], directory: Path) -> list[Path]:
    """Write everything into a folder and return the files, the document last: where it is, the
    rest is.

    Raises:
        ShapeshiftError: a file cannot be written.
    """
    paths = []
    try:
        for table in document.tables:
            texts = {"md": markdown(table), "tex": latex(table), "csv": comma_separated(table)}
            for suffix, text in texts.items():
                paths.append(directory / f"{table.name}.{suffix}")
                write_whole(paths[-1], text.encode())
        for drawn in figures:
            paths += save(drawn.figure, directory / drawn.about.name)
        return [*paths, document.save(directory)]
    except OSError as error:
        raise ShapeshiftError(f"cannot be written: {error.strerror}", path=directory) from error


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
    return _SPECIAL.sub(lambda found: _LATEX[found.group()], text)


def comma_separated(table: DocumentTable) -> str:
    """Return a table as CSV: numbers in full, words as they are shown."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.header)
    for row in table.rows:
        writer.writerow([entry.text if entry.value is None else entry.value for entry in row])
    return text.getvalue()


def _latex_row(texts: Iterable[str]) -> str:
    return " & ".join(map(escape_latex, texts)) + r" \\"


def _sentences(notes: Iterable[str]) -> list[str]:
    return [note if note.endswith(".") else note + "." for note in notes]
