"""Makes tables, plots and findings of an item from its spec and its finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import fmean

from shapeshift.data.config import FilesCorpus
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.lab.measures import mean_of
from shapeshift.lab.results import Row
from shapeshift.lab.significance import MARK
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.spec import (
    ALL,
    ClaimSpec,
    ColumnSpec,
    ItemSpec,
    PlotSpec,
    Published,
    PublishedSpec,
    TableSpec,
    read_spec,
)
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import NOT_MEASURED, Part, finding, mark_note, significant

Settings = dict[str, str]
"""Axis → setting."""

_MIN_SPAN = 2.0
"""Of the vertical axis of a plot, BLEU: less is within the noise of most test sets."""


def shipped_item(paper: str, name: str) -> Item:
    """Return an item that comes with the package, from `papers/items/PAPER-NAME.yaml`."""
    path = Path(str(files("shapeshift"))) / "papers" / "items" / f"{paper}-{name}.yaml"
    spec = read_spec(path)
    assert isinstance(spec.grid, str), f"{path} has a grid of its own"
    return item_of(spec, name, spec.grid)


def item_of(spec: ItemSpec, name: str, grid: str) -> Item:
    """Return an item that is made as its spec says, of the runs of a grid of this name."""
    return Item(spec.title, (grid,), partial(build, spec, name, grid))


def build(spec: ItemSpec, name: str, grid: str, study: Study) -> Content:
    """Make the content of an item.

    Args:
        spec: what it is.
        name: of the item.
        grid: name of its grid.
        study: its runs.
    """
    content = Content()
    published = []
    for table in spec.tables:
        ours = _Table(grid, table, study).document(table.name or name)
        content.tables.append(ours)
        if table.published:
            published.append(_published(table, table.published, ours))
        if table.plot and (drawn := _plot(grid, table, table.plot, ours.name, study)):
            content.figures.append(drawn)
    content.tables.extend(published)
    content.findings.extend(_finding(grid, claim, study) for claim in spec.claims)
    return content


class _Table:
    """Our table: a row for each place, which is a combination of settings of the row axes."""

    def __init__(self, grid: str, spec: TableSpec, study: Study):
        self.grid, self.spec, self.study = grid, spec, study
        self.places = _places(study.cells(grid, spec.only), spec.rows)

    def document(self, name: str) -> DocumentTable:
        columns: dict[str, list[tuple[Entry, Entry]]] = {}
        for group in _groups(self.grid, self.spec, self.study):
            for title, column in self.spec.columns.items():
                if column.split == "each set":
                    columns |= self._each_set(column)
                else:
                    heading = f"{' '.join(group.values())} {title}".strip()
                    columns[heading] = self._column(group, column)
        rows = []
        for line, place in enumerate(self.places):
            names, fields = (
                words(*_names(self.spec, place)),
                [own[line] for own in columns.values()],
            )
            if not self.spec.statistics:
                rows.append((*names, *(shown for shown, _ in fields)))
                continue
            rows.append((*names, *words("median"), *(median for _, median in fields)))
            rows.append((*names, *words("average"), *(shown for shown, _ in fields)))
        return DocumentTable(
            name=name,
            title=self.spec.title,
            header=(*_heads(self.spec), *columns),
            rows=tuple(rows),
            notes=tuple(self._notes()),
        )

    def _column(self, group: Settings, column: ColumnSpec) -> list[tuple[Entry, Entry]]:
        """Return for each place the field and the median over seeds."""
        shown = self.spec.columns[column.gain_of] if column.gain_of else column
        parts = self._tests(group, shown)
        differing = significant(parts)
        entries = []
        for line, place in enumerate(self.places):
            settings = place | group | self.spec.only
            if column.gain_of:
                gain = number(None)
                if line in parts and (test := parts[line].comparison):
                    cells = self.study.finished(self.grid, settings)
                    gain = number(test.difference, "+.2f", cells)
                entries.append((gain, missing()))
                continue
            rows = _rows(self.study, self.grid, settings, column)
            mark = MARK if line in differing else ""
            show = _whole if column.show == "whole number" else column.show
            median = self.study.entry(rows, "median", median=True)
            entries.append((self.study.entry(rows, show, mark), median))
        return entries

    def _each_set(self, column: ColumnSpec) -> dict[str, list[tuple[Entry, Entry]]]:
        """Return the columns of each file of both splits, and the mean of them."""
        sets = _sets(self.study.cells(self.grid)[0])
        found: dict[str, list[tuple[Entry, Entry]]] = {name: [] for name in (*sets, "average")}
        for place in self.places:
            settings = place | self.spec.only
            fields = [
                self.study.entry(
                    self.study.rows(self.grid, column.metric, settings, dataset=name), "mean"
                )
                for name in sets
            ]
            values = [field.value for field in fields if field.value is not None]
            average = missing()
            if len(values) == len(sets):
                rows = tuple(row for field in fields for row in field.rows)
                average = Entry(text=f"{fmean(values):.2f}", value=fmean(values), rows=rows)
            for name, field in zip(found, (*fields, average), strict=True):
                found[name].append((field, missing()))
        return found

    def _tests(self, group: Settings, column: ColumnSpec) -> dict[int, Part]:
        """Return line → comparison with the baseline."""
        if (
            not self.spec.baseline
            or column.metric != "BLEU"
            or column.split not in ("valid", "test")
        ):
            return {}
        return {
            line: self.study.compare(
                self.grid, settings, settings | self.spec.baseline, column.split
            )
            for line, place in enumerate(self.places)
            if (settings := place | group | self.spec.only) != settings | self.spec.baseline
        }

    def _notes(self) -> Iterator[str]:
        if self.spec.statistics:
            yield "median, and mean ± standard deviation, over seeds"
        else:
            yield self.study.spread(self.grid)
        if self.spec.baseline:
            baseline = ", ".join(f"{axis} = {value}" for axis, value in self.spec.baseline.items())
            yield mark_note(baseline)
        yield from self.spec.notes
        if note := self.spec.scale_notes.get(self.study.scale):
            yield note


def _published(table: TableSpec, paper: PublishedSpec, ours: DocumentTable) -> DocumentTable:
    num_names = len(table.header or table.rows)
    header = paper.header or tuple(title for title in ours.header if title != _STATISTIC)
    rows: list[tuple[Entry, ...]] = []
    for given in paper.rows:
        names = words(*(_name(each) for each in given[:num_names]))
        numbers = given[num_names:]
        if table.statistics:
            for line, statistic in enumerate(("median", "average")):
                fields = [_given(each, paper.decimals, line) for each in numbers]
                rows.append((*names, *words(statistic), *fields))
        else:
            rows.append((*names, *(_given(each, paper.decimals) for each in numbers)))
    if table.statistics:
        header = (*header[:num_names], _STATISTIC, *header[num_names:])
    return DocumentTable(
        name=f"{ours.name}-paper",
        title=paper.title or f"{table.title}, in the paper",
        origin="paper",
        header=header,
        rows=tuple(rows),
        notes=paper.notes,
    )


def _plot(
    grid: str, table: TableSpec, plot: PlotSpec, table_name: str, study: Study
) -> Figure | None:
    """Draw a column over an axis, a line for each setting of `across`."""
    settings = study.settings(grid, plot.x)
    column = table.columns[plot.y]
    lines = []
    for group in _groups(grid, table, study):
        values = [
            [row.value for row in _rows(study, grid, group | {plot.x: x}, column)] for x in settings
        ]
        if any(values):
            name = " ".join(group.values()) or plot.y
            lines.append(Line(name, range(len(settings)), values))
    if not lines:
        return None
    described = "; ".join(
        f"{line.name}: "
        + ", ".join(
            f"{fmean(values):.1f} at {x}"
            for x, values in zip(settings, line.values, strict=True)
            if values
        )
        for line in lines
    )
    about = DocumentFigure(
        name=plot.name or f"{table_name}-plot",
        title=f"{plot.title}; bars are one standard deviation over seeds",
        table=table_name,
        alt=f"{plot.y} over {plot.x}. {described}.",
    )
    panel = Panel(lines, plot.y, places=settings, min_span=_MIN_SPAN)
    return Figure(about, draw_lines([panel], plot.x_title or plot.x))


def _finding(grid: str, claim: ClaimSpec, study: Study) -> Finding:
    parts = _threshold_parts(grid, claim, study)
    if claim.rule != "threshold":
        parts = {
            label: study.compare(grid, test, against, claim.split)
            for label, test, against in _pairs(grid, claim, study)
        }
    return finding(claim, parts, study.scale)


def _pairs(grid: str, claim: ClaimSpec, study: Study) -> Iterator[tuple[str, Settings, Settings]]:
    """Yield label, tested settings and settings compared with, of what has runs at this scale."""
    pairs = [*([(claim.test, claim.against)] if claim.against else []), *claim.pairs]
    for place in _combinations(grid, claim, study):
        for test, against in pairs:
            sides = place | test, place | test | against
            if sides[0] != sides[1] and all(study.cells(grid, side) for side in sides):
                names = [" ".join(each.values()) for each in (test, against)]
                differing = [f"{names[0] or 'other'} against {names[1]}"]
                yield " ".join([*place.values(), *differing]), *sides


def _threshold_parts(grid: str, claim: ClaimSpec, study: Study) -> dict[str, Part]:
    parts = {}
    for place in _combinations(grid, claim, study):
        rows = study.rows(grid, claim.metric, place | claim.test)
        values = {row.seed: row.value for row in rows}
        label = " ".join([claim.metric, *place.values()])
        parts[label] = Part(values, reason="" if values else NOT_MEASURED)
    return parts


def _combinations(grid: str, claim: ClaimSpec, study: Study) -> list[Settings]:
    """Return the combinations of `each`."""
    settings = [
        study.settings(grid, axis) if wanted == (ALL,) else wanted
        for axis, wanted in claim.each.items()
    ]
    return [dict(zip(claim.each, values, strict=True)) for values in product(*settings)]


def _sets(cell: Cell) -> list[str]:
    """Return the datasets under which `lab.measures.Score` has the BLEU of each set."""
    corpus = cell.config.data.corpus
    found: list[str] = []
    for split in ("valid", "test"):
        labels: list[str] = []
        if isinstance(corpus, FilesCorpus):
            labels = [corpus.label(split, n) for n in range(len(corpus.prefixes(split)))]
        found += [f"{split}/{label}" for label in labels] if len(labels) > 1 else [split]
    return found


def _places(cells: Sequence[Cell], axes: Sequence[str]) -> list[Settings]:
    """Return the combinations of settings that cells have, in the grid's order."""
    found = {tuple(cell.axes[axis] for axis in axes): None for cell in cells}
    return [dict(zip(axes, values, strict=True)) for values in found]


def _groups(grid: str, table: TableSpec, study: Study) -> list[Settings]:
    if not table.across:
        return [{}]
    return [{table.across: setting} for setting in study.settings(grid, table.across)]


def _rows(study: Study, grid: str, settings: Settings, column: ColumnSpec) -> list[Row]:
    dataset = mean_of(column.split) if column.split else None
    return study.rows(grid, column.metric, settings, dataset=dataset, bucket=column.bucket)


_STATISTIC = "statistic"


def _heads(table: TableSpec) -> tuple[str, ...]:
    names = table.header or table.rows
    return (*names, _STATISTIC) if table.statistics else names


def _names(table: TableSpec, place: Settings) -> tuple[str, ...]:
    """Return the fields that name a row."""
    if table.labels:
        [setting] = place.values()
        return table.labels.get(setting, (setting,) + ("",) * (len(table.header) - 1))
    return tuple(place.values())


def _name(given: Published) -> str:
    return "" if given is None else f"{given:g}" if isinstance(given, float) else str(given)


def _given(value: Published, decimals: int, line: int | None = None) -> Entry:
    """Return a number of the paper: line 0 is the median of three, line 1 mean and deviation."""
    if isinstance(value, str):
        return Entry(text=value)
    if isinstance(value, tuple):
        median, mean, stdev = value if len(value) == 3 else (value[0], *value)
        if line == 0:
            return number(median, f".{decimals}f")
        return Entry(text=f"{mean:.{decimals}f} ± {stdev:.{decimals}f}", value=mean)
    return number(value, f",.{decimals}f")


def _whole(mean: float) -> str:
    return f"{mean:,.0f}"
