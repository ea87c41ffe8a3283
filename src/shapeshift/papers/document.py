"""The results of an item as a document: tables, figures, findings, and the source of each number.

`shapeshift reproduce` writes one as `item.json` next to the item's tables and figures;
`shapeshift report` reads it, and needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from shapeshift.data.prepared import Prepared
from shapeshift.disk import save
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.integrity import digest
from shapeshift.lab.grid import Cell
from shapeshift.lab.results import Row
from shapeshift.schema import Strict

FILE = "item.json"

Verdict = Literal[
    "supported",
    "contradicted",
    "inconclusive",
    "not tested at this scale",
    "one run",
    "two runs",
    "not run",
]
Origin = Literal["ours", "paper"]


class Entry(Strict):
    """One field of a table.

    Attributes:
        text: as it is shown.
        value: the number that is sorted by and exported; `None` for text and missing values.
        rows: which of the document's measurements it was computed from, by their numbers.
        cells: keys of the runs that it was computed from, where there are no measurements.
        data: fingerprint of the prepared data that it was counted in, where it is no number of a
            run; `cells` then name one that has these data. See `data.prepared.Report`.
        p_value: of the test against the baseline of its column; `None` where none was made.
    """

    text: str
    value: float | None = None
    rows: tuple[int, ...] = ()
    cells: tuple[str, ...] = ()
    data: str = ""
    p_value: float | None = None


def missing() -> Entry:
    """Return the field for what was not measured."""
    return Entry(text=NO_VALUE)


def words(*texts: str) -> tuple[Entry, ...]:
    """Return fields that hold text."""
    return tuple(Entry(text=text) for text in texts)


def number(value: float | None, show: str = ".2f", cells: Iterable[Cell] = ()) -> Entry:
    """Return a field for a number that is no measurement of its own, such as the paper's."""
    if value is None:
        return missing()
    keys = tuple(dict.fromkeys(cell.key for cell in cells))
    return Entry(text=format(value, show), value=value, cells=keys)


def counted(value: int, data: Prepared, cell: Cell) -> Entry:
    """Return a field for a number of the data, whatever is trained on them."""
    fingerprint = data.report.fingerprint
    return Entry(text=f"{value:,}", value=value, cells=(cell.key,), data=fingerprint)


class DocumentTable(Strict):
    """A table: the first column names the rows.

    Attributes:
        name: of its files, such as `table2`.
        title: a caption.
        origin: measured by us, or copied from the paper.
        header: a title for each column.
        rows: each as long as `header`.
        notes: lines to stand below.
    """

    name: str
    title: str
    origin: Origin = "ours"
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()


class DocumentFigure(Strict):
    """A figure: files `name.svg`, `name.png` and `name.pdf` next to the document.

    Attributes:
        name: of its files.
        title: a caption.
        table: the name of the table that holds what it shows.
        alt: text that describes the figure to people who cannot see it.
    """

    name: str
    title: str
    table: str
    alt: str


class Finding(Strict):
    """A claim, and whether it holds for our runs.

    Attributes:
        claim: one sentence.
        verdict: what our measurements say.
        measured: the numbers, with seeds and significance.
        paper: what was expected, such as the paper's numbers.
        p_values: of the tests, by what was compared.
    """

    claim: str
    verdict: Verdict
    measured: str
    paper: str
    p_values: dict[str, float] = Field(default_factory=dict)


class ItemDocument(Strict):
    """An item of a paper at one scale.

    Attributes:
        paper, item: their names, as in `shapeshift reproduce PAPER:ITEM`.
        title: what the item is in the paper.
        citation: of the paper.
        scale: of the runs.
        command: what was typed.
        settings: overrides of all runs; `None` where they were not recorded.
        seeds: of the runs that it was made from; `None` where they were not recorded.
        label: that tells results with other settings apart.
        version: of Shapeshift.
        time: when it was made, UTC, ISO 8601.
        tables, figures, findings: its results.
        measurements: that the tables' entries name by number.
        configs: cell key → its settings, YAML.
        unfinished: names of cells that were not there.
    """

    paper: str
    item: str
    title: str
    citation: str
    scale: str
    command: str
    version: str
    time: str
    tables: tuple[DocumentTable, ...] = ()
    figures: tuple[DocumentFigure, ...] = ()
    findings: tuple[Finding, ...] = ()
    measurements: tuple[Row, ...] = ()
    configs: dict[str, str] = Field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    settings: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    label: str = ""

    @property
    def labelled_scale(self) -> str:
        """The scale, and the label if there is one: `small-multi30k`."""
        return "-".join(filter(None, (self.scale, self.label)))

    @property
    def is_empty(self) -> bool:
        """Whether no number of ours is in it: no run was finished, or there was no text."""
        ours = (table for table in self.tables if table.origin == "ours")
        return all(e.value is None for table in ours for row in table.rows for e in row)

    def save(self, directory: Path) -> Path:
        """Write `item.json` into a folder, whole or not at all."""
        path = directory / FILE
        document = self.model_dump(mode="json", exclude_defaults=True)
        document["sha256"] = digest(document)
        save(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> ItemDocument:
        """Read an `item.json`.

        Raises:
            ShapeshiftError: it cannot be read, or is not what was written.
        """
        remedy = "remove it and run `shapeshift reproduce` again"
        try:
            document = json.loads(path.read_bytes())
            expected = document.pop("sha256", None)
            if expected not in (None, digest(document)):
                raise ShapeshiftError(f"differs from what was written; {remedy}", path=path)
            return cls.model_validate(document)
        except OSError as error:
            raise ShapeshiftError(f"cannot be read: {error.strerror}", path=path) from error
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise ShapeshiftError(f"not the document of an item; {remedy}", path=path) from error
