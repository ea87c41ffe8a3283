"""A study's results as a document: tables, captions of figures, findings.

`shapeshift reproduce` writes one as `study.json` next to the study's tables and figures;
`shapeshift report` reads it, and needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal

from pydantic import Field

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read, save
from shapeshift._system.hashes import digest
from shapeshift._system.schema import Strict
from shapeshift.data.sources.files import reading
from shapeshift.evaluation.tables import NO_VALUE

FILE = "study.json"

Verdict = Literal[
    "supported",
    "contradicted",
    "inconclusive",
    "not tested in this profile",
    "one run",
    "two runs",
    "not run",
]


class Entry(Strict):
    """One field of a table.

    Attributes:
        text: as it is shown.
        value: the number that is sorted by and exported; `None` for text and missing values.
        p_value: of the test against the baseline of its column; `None` where none was made.
    """

    text: str
    value: float | None = None
    p_value: float | None = None


def words(*texts: str) -> tuple[Entry, ...]:
    """Return fields of text."""
    return tuple(Entry(text=text) for text in texts)


def number(value: float | None, show: str = ".2f") -> Entry:
    """Return a field with a number, or a dash for `None`."""
    return Entry(text=NO_VALUE if value is None else format(value, show), value=value)


def summary(
    values: Sequence[float], show: str = "mean", mark: str = "", sign: str = "", decimals: int = 2
) -> Entry:
    """Return the values of several seeds as a field, as `spec.Show` says; a dash if there are
    none."""
    if not values:
        return number(None)
    whole = show == "whole number"
    text = format(fmean(values), sign + (",.0f" if whole else f".{decimals}f"))
    if show.startswith("mean ± stdev") and len(values) > 1:
        text += f" ± {stdev(values):.{decimals}f}"
    if show.endswith("(median)") and len(values) > 1:
        text += f" (median {median(values):.{decimals}f})"
    return Entry(text=text + mark, value=fmean(values))


class DocumentTable(Strict):
    """A table: the first column names the rows.

    Attributes:
        name: of its files, such as `table2`.
        title: a caption.
        origin: measured by us, or copied from the paper.
        header: a title for each column.
        rows: each as long as `header`.
        notes: lines to stand below.
        figure: a caption of the figure of these numbers, whose files are `name.svg`, `name.png` and
            `name.pdf`; empty if there is none.
        drawing: the figure, which is not part of the document.
        overrides: settings of all its runs in place of those of the grid.
    """

    name: str
    title: str
    origin: Literal["ours", "paper"] = "ours"
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    figure: str = ""
    drawing: Any = Field(default=None, exclude=True, repr=False)
    overrides: tuple[str, ...] = ()

    def with_overrides(self, overrides: Sequence[str]) -> DocumentTable:
        """Return the table with these overrides in its notes, its figure's caption and its files,
        so that a table made with fewer updates cannot pass for the paper's."""
        if not overrides or self.origin == "paper":
            return self
        note = f"runs with {' '.join(overrides)}"
        figure = f"{self.figure} ({note})" if self.figure else ""
        update = {"overrides": tuple(overrides), "notes": (note, *self.notes), "figure": figure}
        return self.model_copy(update=update)


class Finding(Strict):
    """A claim, and whether it holds for our runs.

    Attributes:
        claim: one sentence.
        verdict: what our results say.
        measured: the numbers, with seeds and significance.
        paper: what was expected, such as the paper's numbers.
        p_values: of the tests, by what was compared.
        power: of the verdict's test, see `study.power`.
        spread: of the differences: standard deviation over seeds, standard error over sentences,
            and the degrees of freedom of the first.
    """

    claim: str
    verdict: Verdict
    measured: str
    paper: str
    p_values: dict[str, float] = Field(default_factory=dict)
    power: float | None = None
    spread: tuple[float, float, int] | None = None


@dataclass
class Content:
    """The results of a study.

    Attributes:
        tables: ours first, then the paper's; a figure belongs to the table of its numbers.
        findings: the claims of the paper that the study is about.
        values: name → seed → value, for claims of `rule: threshold` with this `metric`.
    """

    tables: list[DocumentTable] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    values: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, part: Content) -> None:
        """Add a part of the study. Names are those of files: a table whose name is taken gets a
        number; some file systems do not distinguish `A` and `a`."""
        for table in part.tables:
            taken = {"results", *(x.name.casefold() for x in self.tables)}  # results.csv
            names = chain([table.name], (f"{table.name}-{n}" for n in count(2)))
            name = next(each for each in names if each.casefold() not in taken)
            self.tables.append(table.model_copy(update={"name": name}))
        self.values |= part.values


class StudyDocument(Strict):
    """A study of a paper in one profile.

    Attributes:
        paper, study: their names, as in `shapeshift reproduce PAPER:STUDY`.
        title: what the study is in the paper.
        paper_title: of a paper of one's own.
        citation: of the paper.
        profile: of the runs.
        command: what was typed.
        settings: overrides of all runs.
        seeds: of the runs that it was made from.
        label: that tells results with other settings apart.
        version: of Shapeshift.
        time: when it was made, UTC, ISO 8601.
        tables, findings: its results.
        configs: run key → its settings, YAML.
        unfinished: names of runs that were not there.
    """

    paper: str
    study: str
    title: str
    citation: str
    profile: str
    command: str
    version: str
    time: str
    tables: tuple[DocumentTable, ...] = ()
    findings: tuple[Finding, ...] = ()
    configs: dict[str, str] = Field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    label: str = ""
    paper_title: str = ""

    @property
    def labelled_profile(self) -> str:
        """The profile, and the label if there is one: `small-multi30k`."""
        return "-".join(filter(None, (self.profile, self.label)))

    @property
    def is_empty(self) -> bool:
        """Whether it has no results of ours, because no run is finished or the text is missing."""
        ours = (table for table in self.tables if table.origin == "ours")
        return all(e.value is None for table in ours for row in table.rows for e in row)

    def save(self, directory: Path) -> Path:
        """Write `study.json` into a folder, whole or not at all."""
        path = directory / FILE
        document = self.model_dump(mode="json", exclude_defaults=True)
        document["sha256"] = digest(document)
        save(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> StudyDocument:
        """Read a `study.json`.

        Raises:
            ShapeshiftError: it cannot be read, or is not what was written.
        """
        remedy = "remove it and run `shapeshift reproduce` again"
        with reading(path):
            content = read(path)
        try:
            document = json.loads(content)
            expected = document.pop("sha256", None)
            study = cls.model_validate(document)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise ShapeshiftError(f"not the document of a study; {remedy}", path=path) from error
        if expected not in (None, digest(document)):
            raise ShapeshiftError(f"differs from what was written; {remedy}", path=path)
        return study
