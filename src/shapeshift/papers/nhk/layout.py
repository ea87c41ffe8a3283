"""The paper's way to show a system: median, and average with standard deviation, of BLEU and COMET
over three seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shapeshift.lab.measures import mean_of
from shapeshift.papers.column import Column
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.papers.entries import number, words
from shapeshift.papers.study import Axes, Study

METRICS = ("BLEU", "COMET")

Stats = tuple[float, float, float]
"""Median, average, standard deviation."""

Published = tuple[Stats, Stats]
"""BLEU and COMET of one system in the paper."""

Heads = tuple[str, ...]
"""The fields that name a system."""

_STATISTIC = "statistic"
_NOTES = ("median, and average ± standard deviation, over seeds",)


@dataclass(frozen=True)
class Layout:
    """What both the paper's table and ours look like.

    Attributes:
        heads: titles of the columns that name a system.
        columns: titles of groups of columns, each of them BLEU and COMET; one without a title
            stands alone.
    """

    heads: tuple[str, ...]
    columns: tuple[str, ...] = ("",)

    def header(self) -> tuple[str, ...]:
        """Return the titles of all columns."""
        scores = (f"{column} {metric}".strip() for column in self.columns for metric in METRICS)
        return (*self.heads, _STATISTIC, *scores)


def ours(
    study: Study,
    grid: str,
    layout: Layout,
    systems: Mapping[Heads, Sequence[Axes]],
    *,
    name: str,
    title: str,
    notes: Iterable[str] = (),
    tested: tuple[str, str] | None = None,
) -> DocumentTable:
    """Return the table of our measurements on the test set; dashes where there are none.

    Args:
        study: with the cells.
        grid: their grid.
        layout: of the table.
        systems: fields for `layout.heads` → the settings of the cells, for each of its columns.
        name, title, notes: of the table.
        tested: an axis, and the setting of it that average BLEU of all others is tested against,
            each column by itself; see `papers.column.note`.
    """
    marks = {} if tested is None else _marks(study, grid, tested, systems)
    rows = []
    for heads, settings in systems.items():
        found = [
            study.rows(grid, metric, axes, dataset=mean_of("test"))
            for axes in settings
            for metric in METRICS
        ]
        medians = [study.entry(each, "median", median=True) for each in found]
        signs = marks.get(heads, [""] * len(found))
        averages = [
            study.entry(each, "mean ± stdev", sign) for each, sign in zip(found, signs, strict=True)
        ]
        rows += _rows(heads, medians, averages)
    return DocumentTable(
        name=name,
        title=title,
        header=layout.header(),
        rows=tuple(rows),
        notes=(*_NOTES, *notes),
    )


def published(
    layout: Layout,
    systems: Mapping[Heads, Sequence[Published]],
    *,
    name: str,
    title: str,
    notes: Iterable[str] = (),
) -> DocumentTable:
    """Return the paper's table; the arguments are those of `ours`."""
    rows = []
    for heads, scores in systems.items():
        stats = [each for pair in scores for each in pair]
        medians = [number(median) for median, _, _ in stats]
        averages = [Entry(text=f"{mean:.2f} ± {stdev:.2f}", value=mean) for _, mean, stdev in stats]
        rows += _rows(heads, medians, averages)
    return DocumentTable(
        name=name,
        title=title,
        origin="paper",
        header=layout.header(),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _marks(
    study: Study, grid: str, tested: tuple[str, str], systems: Mapping[Heads, Sequence[Axes]]
) -> dict[Heads, list[str]]:
    """Return for each system what stands behind its averages; COMET has no test."""
    axis, baseline = tested
    marks: dict[Heads, list[str]] = {heads: [] for heads in systems}
    for settings in zip(*systems.values(), strict=True):  # of one column
        others = {name: each for name, each in settings[0].items() if name != axis}
        found = study.comparisons(grid, axis, baseline, others)
        assert len(found) <= 1, f"{others} leaves an axis open"
        column = Column([test for group in found.values() for test in group])
        for heads, axes in zip(systems, settings, strict=True):
            marks[heads] += [column.mark(str(axes[axis])), ""]
    return marks


def _rows(
    heads: Heads, medians: Sequence[Entry], averages: Sequence[Entry]
) -> list[tuple[Entry, ...]]:
    return [(*words(*heads, "median"), *medians), (*words(*heads, "average"), *averages)]
