"""The tables of an item: ours, made from its runs as its spec says, and the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from shapeshift.data.config import FilesCorpus
from shapeshift.lab.grid import Cell
from shapeshift.lab.measures import mean_of, usable
from shapeshift.lab.results import Row
from shapeshift.lab.significance import MARK
from shapeshift.papers.by_length import bounds_label, length_bounds, trained_lengths
from shapeshift.papers.document import DocumentTable, Entry, counted, missing, number, words
from shapeshift.papers.metrics import FACTS
from shapeshift.papers.spec import ColumnSpec, Published, PublishedSpec, TableSpec
from shapeshift.papers.study import AGGREGATES, Axes, Settings, Study
from shapeshift.papers.verdicts import Part, mark_note, significant, with_p_value
from shapeshift.positions import KINDS

_EMBEDDINGS = "layer 0"


class TableBuilder:
    """Makes a table: a row for each line, which is a combination of settings of the row axes."""

    def __init__(self, spec: TableSpec, study: Study, *, trained: bool = True):
        self.spec, self._study, self._trained = spec, study, trained
        cells = study.cells(spec.only)
        places = dict.fromkeys(tuple(cell.axes[axis] for axis in spec.rows) for cell in cells)
        buckets = spec.buckets or {"": None}
        self.lines = [
            (dict(zip(spec.rows, place, strict=True)), name) for place in places for name in buckets
        ]

    def table(self, name: str) -> DocumentTable:
        """Return the table, under a name which is that of its files."""
        columns: dict[str, list[Entry]] = {}
        for group in self.groups():
            for title, column in self.spec.columns.items():
                if not self._study.cells(column.only):
                    continue
                if column.split == "each set":
                    columns |= self._each_set(column)
                    continue
                shared = column.count or column.metric in FACTS  # by all groups
                settings: Settings = {} if shared else group
                heading = " ".join([*settings.values(), title]).strip()
                if heading not in columns:
                    columns[heading] = self._column(settings, column)
        rows = []
        for at, line in enumerate(self.lines):
            names, fields = words(*self._names(*line)), [own[at] for own in columns.values()]
            rows.append((*names, *fields))
        return DocumentTable(
            name=name,
            title=self.spec.title,
            header=(*(self.spec.header or self.spec.rows), *columns),
            rows=tuple(rows),
            notes=tuple(self._notes()),
        )

    def groups(self) -> list[Settings]:
        """Return the settings of each group of columns."""
        axis = self.spec.across
        return [{axis: each} for each in self._study.settings(axis)] if axis else [{}]

    def _column(self, group: Settings, column: ColumnSpec) -> list[Entry]:
        tested = self.spec.columns[column.gain_of] if column.gain_of else column
        tests = self._tests(group, tested)
        differing = set() if column.gain_of else significant(tests)
        if column.lengths:
            return self._from_tests(group, column, tests, differing)
        entries = []
        for line, (place, bucket) in enumerate(self.lines):
            settings = self._settings(group, column, place)
            if column.gain_of:
                test = tests[line].comparison if line in tests else None
                cells = self._study.finished(settings) if test else ()
                entries.append(number(test.difference if test else None, "+.2f", cells))
            elif column.difference:
                sides = [self.spec.columns[title] for title in column.difference]
                first, second = (
                    self._measured(self._settings(group, side, place), side, bucket)
                    for side in sides
                )
                entries.append(_difference(first, second))
            elif column.count:
                entries.append(self._count(settings, column))
            elif column.metric in FACTS:
                entries += words(self._fact(settings, column))
            else:
                mark = MARK if line in differing else ""
                entry = self._measured(settings, column, bucket, mark)
                entries.append(with_p_value(entry, tests.get(line)))
        return entries

    def _settings(self, group: Settings, column: ColumnSpec, place: Settings) -> Settings:
        return place | group | self.spec.only | column.only

    def rows(
        self,
        settings: Settings,
        column: ColumnSpec,
        bucket: str = "",
        dataset: str | None = None,
    ) -> list[Row]:
        """Return the measurements of a field."""
        if dataset is None and column.split:
            dataset = mean_of(column.split)
        part = self.spec.buckets.get(bucket) or column.bucket
        if part == "trained lengths":
            part = None
            bounds = [trained_lengths(cell.config) for cell in self._study.cells(settings)]
            if bounds and bounds[0]:
                part, dataset = bounds_label(bounds[0]), column.split
        return self._study.rows(column.metric, settings, dataset=dataset, bucket=part)

    def _measured(
        self,
        settings: Settings,
        column: ColumnSpec,
        bucket: str = "",
        mark: str = "",
        dataset: str | None = None,
    ) -> Entry:
        if column.layers:
            return self._lowest_layer(settings, column)
        rows = self.rows(settings, column, bucket, dataset)
        return self._study.entry(rows, column.show, mark)

    def _lowest_layer(self, settings: Settings, column: ColumnSpec) -> Entry:
        """Return the values of the layer in which a seed has the lowest."""
        rows = [
            row
            for row in self._study.rows(column.metric, settings, bucket=...)
            if row.bucket != _EMBEDDINGS
        ]
        if not rows:
            return missing()
        lowest = min(rows, key=lambda row: row.value)
        entry = self._study.entry([row for row in rows if row.bucket == lowest.bucket])
        return entry.model_copy(update={"text": f"{lowest.value:.3f}", "value": lowest.value})

    def _fact(self, settings: Settings, column: ColumnSpec) -> str:
        cell = self._study.cells(settings)[0]
        if column.metric == "trained lengths":
            return bounds_label(trained_lengths(cell.config))
        parts = cell.config.position.scheme.parts
        return "yes" if all(KINDS[part.kind].build.shift_invariant for part in parts) else "no"

    def _count(self, settings: Settings, column: ColumnSpec) -> Entry:
        find = self._study.finished if self._trained else self._study.cells
        cells = find(settings)
        if not cells:
            return missing()
        data = self._study.prepared(cells[0])
        split = column.split or "train"
        assert split != "each set"
        if column.count == "read":
            return counted(data.report.splits[split].read, data, cells[0])
        store = data.store(split)
        value = len(store)
        if column.count == "tokens":
            value = int(store.source_lengths.sum(dtype=np.int64))
        elif column.count == "longest":
            value = int(store.source_lengths.max())
        return counted(value, data, cells[0])

    def _each_set(self, column: ColumnSpec) -> dict[str, list[Entry]]:
        """Return the columns of each file of both splits, and the mean of them."""
        columns = {
            name: [
                self._measured(self._settings({}, column, place), column, bucket, dataset=name)
                for place, bucket in self.lines
            ]
            for name in each_set(self._study.cells()[0])
        }
        return columns | {"average": list(map(_mean, zip(*columns.values(), strict=True)))}

    def _tests(self, group: Settings, column: ColumnSpec) -> dict[int, Part]:
        """Return line → comparison with the baseline."""
        split = column.split
        if not self.spec.baseline or column.metric != "BLEU" or split not in ("valid", "test"):
            return {}
        tests = {}
        for line, (place, _) in enumerate(self.lines):
            settings = self._settings(group, column, place)
            against = settings | self.spec.baseline
            cells = self._study.cells(settings)
            if settings == against or not cells:
                continue
            bounds = length_bounds(cells[0].config, column.lengths) if column.lengths else None
            tests[line] = self._study.compare(settings, against, split, lengths=bounds)
        return tests

    def _from_tests(
        self, group: Settings, column: ColumnSpec, tests: dict[int, Part], differing: set[int]
    ) -> list[Entry]:
        """Return scores on a part of the text, which the comparisons have, also the baseline's."""
        comparisons = {line: part.comparison for line, part in tests.items() if part.comparison}
        entries = []
        for line, (place, _) in enumerate(self.lines):
            settings = self._settings(group, column, place)
            is_baseline = settings == settings | self.spec.baseline
            test = comparisons.get(line)
            if is_baseline and comparisons:
                test = max(comparisons.values(), key=lambda each: len(each.p_values))
            if test is None:
                entries.append(missing())
                continue
            seeds: Axes = {**settings, "seed": [*test.p_values]}
            cells = self._study.finished(seeds)
            scores = [*(test.baseline_scores if is_baseline else test.scores).values()]
            show = AGGREGATES.get(column.show, AGGREGATES["mean ± stdev"])
            text = show(scores) + MARK * (line in differing)
            entry = number(fmean(scores), cells=cells).model_copy(update={"text": text})
            entries.append(with_p_value(entry, tests.get(line)))
        return entries

    def _names(self, place: Settings, bucket: str) -> tuple[str, ...]:
        """Return the fields that name a row."""
        if self.spec.labels:
            [setting] = place.values()
            width = len(self.spec.header)
            return self.spec.labels.get(setting, (setting,) + ("",) * (width - 1))
        return (*place.values(), *([bucket] if self.spec.buckets else []))

    def _notes(self) -> Iterator[str]:
        if not all(column.count for column in self.spec.columns.values()):
            several = len({cell.seed for cell in self._study.cells()}) > 1
            yield "mean ± standard deviation over seeds" if several else "one seed"
        if self.spec.baseline:
            baseline = ", ".join(f"{axis} = {value}" for axis, value in self.spec.baseline.items())
            yield mark_note(baseline)
        yield from self.spec.notes
        if note := self.spec.scale_notes.get(self._study.scale):
            yield note
        if self.spec.buckets:
            yield from usable(self._study.cells()[0].steps)[1]


def published_table(table: TableSpec, paper: PublishedSpec, ours: DocumentTable) -> DocumentTable:
    """Return the paper's table."""
    num_names = len(table.header or table.rows)
    rows = [
        (
            *words(*map(_name, row[:num_names])),
            *(_given(x, paper.decimals) for x in row[num_names:]),
        )
        for row in paper.rows
    ]
    return DocumentTable(
        name=f"{ours.name}-paper",
        title=paper.title or f"{table.title}, in the paper",
        origin="paper",
        header=paper.header or ours.header,
        rows=tuple(rows),
        notes=paper.notes,
    )


def each_set(cell: Cell) -> list[str]:
    """Return the datasets under which `lab.measures.Score` has the BLEU of each set."""
    corpus = cell.config.data.corpus
    datasets: list[str] = []
    for split in ("valid", "test"):
        labels: list[str] = []
        if isinstance(corpus, FilesCorpus):
            labels = [corpus.label(split, n) for n in range(len(corpus.prefixes(split)))]
        datasets += [f"{split}/{label}" for label in labels] if len(labels) > 1 else [split]
    return datasets


def _mean(fields: Sequence[Entry]) -> Entry:
    values = [field.value for field in fields if field.value is not None]
    if len(values) < len(fields):
        return missing()
    rows = tuple(row for field in fields for row in field.rows)
    return Entry(text=f"{fmean(values):.2f}", value=fmean(values), rows=rows)


def _difference(first: Entry, second: Entry) -> Entry:
    if first.value is None or second.value is None:
        return missing()
    value = first.value - second.value
    return Entry(text=f"{value:.2f}", value=value, rows=first.rows + second.rows)


def _name(given: Published) -> str:
    return "" if given is None else f"{given:g}" if isinstance(given, float) else str(given)


def _given(value: Published, decimals: int) -> Entry:
    """Return a number of the paper."""
    if isinstance(value, str):
        return Entry(text=value)
    if isinstance(value, tuple):
        median, mean, stdev = (f"{each:.{decimals}f}" for each in value)
        return Entry(text=f"{mean} ± {stdev} (median {median})", value=value[1])
    return number(value, "," if isinstance(value, int) else f",.{decimals}f")
