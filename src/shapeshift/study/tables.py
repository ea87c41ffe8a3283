"""The tables of a study: ours, made from its runs, and the paper's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config
from shapeshift.data.corpora import labels
from shapeshift.evaluation.scores import FEW_SEGMENTS
from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.positions.registry import find_kind
from shapeshift.run.measures import Metric, mean_of, usable
from shapeshift.study.by_length import bounds_label, length_bounds, trained_lengths
from shapeshift.study.check import FACTS
from shapeshift.study.document import Content, DocumentTable, Entry, number, summary, words
from shapeshift.study.figures import Line, Panel, bars_note, draw_lines
from shapeshift.study.measured import Measured, settings_label
from shapeshift.study.significance import MARK, MIN_SEEDS
from shapeshift.study.spec import (
    ColumnSpec,
    CurvesSpec,
    PlotSpec,
    Published,
    PublishedSpec,
    TableSpec,
    Where,
)
from shapeshift.study.verdicts import Part, mark_note, significant, with_p_value

_BUCKET = ""
"""Stands for an axis in the settings of a row: which of the table's buckets it is about."""

_EMBEDDINGS = "layer 0"


class TableBuilder:
    """Makes a table of results."""

    def __init__(self, spec: TableSpec, measured: Measured, *, trained: bool = True):
        self._spec, self._measured, self._trained = spec, measured, trained
        axis = spec.across
        self._compared, self._untested = (
            dict[Metric, None](),
            dict[str, dict[str, dict[str, None]]](),
        )
        self._groups: list[Where] = [{axis: x} for x in measured.settings(axis)] if axis else [{}]
        self._lines: list[Where] = []
        for planned in measured.runs(spec.only):
            place = {axis: planned.axes[axis] for axis in spec.rows}
            places = [place | {_BUCKET: name} for name in spec.buckets] or [place]
            self._lines += [each for each in places if each not in self._lines]

    def table(self, name: str) -> DocumentTable:
        """Return the table; its files get this name."""
        columns: dict[str, list[Entry]] = {}
        num_split = sum(column.split == "each set" for column in self._spec.columns.values())
        for group in self._groups:
            for title, column in self._spec.columns.items():
                if not self._measured.runs(column.only):
                    continue
                is_shared = self._is_shared(column)
                settings: Where = {} if is_shared else group
                first = [*settings.values()]
                if column.split == "each set":
                    own = self._each_set(settings, column)
                    first += [title] * (num_split > 1)
                else:
                    own = {title: self._column(settings, column)}
                for last, entries in own.items():
                    heading = " ".join([*first, last]).strip()
                    if heading in columns and not is_shared:
                        raise ShapeshiftError(
                            f"the table {self._spec.title!r} has two columns {heading!r}; change"
                            " the title of one"
                        )
                    columns[heading] = entries
        caption, drawing = self._plot(self._spec.plot) if self._spec.plot else ("", None)
        return DocumentTable(
            name=name,
            title=self._spec.title,
            header=(*(self._spec.header or self._spec.rows), *columns),
            rows=tuple(
                (*words(*self._names(line)), *(own[at] for own in columns.values()))
                for at, line in enumerate(self._lines)
            ),
            notes=tuple(self._notes()),
            figure=caption,
            drawing=drawing,
        )

    def _is_shared(self, column: ColumnSpec) -> bool:
        """Return whether a column is the same in all groups, as counts of the data may be."""
        if not (column.count or column.metric in FACTS):
            return False
        rows = ({self._field(x | y, column).text for y in self._groups} for x in self._lines)
        return all(len(texts - {NO_VALUE}) <= 1 for texts in rows)

    def _plot(self, plot: PlotSpec) -> tuple[str, Figure | None]:
        """Draw a column over an axis, a line for each setting of `across`; return the caption and
        the drawing."""
        column = self._spec.columns[plot.y]
        settings = list(dict.fromkeys(line[plot.x] for line in self._lines))
        values = {
            " ".join(group.values()) or plot.y: [
                self._values({**group, plot.x: x}, column) for x in settings
            ]
            for group in self._groups
        }
        lines = [Line(name, range(len(settings)), x) for name, x in values.items() if any(x)]
        if not lines:
            return "", None
        metric = self._measured.metric(column.metric, column.split)
        panel = Panel(lines, plot.y, places=settings, min_span=metric.min_span)
        return plot.title + bars_note(lines), draw_lines([panel], plot.x_title or plot.x)

    def _values(self, place: Where, column: ColumnSpec, text: str | None = None) -> list[float]:
        """Return the results of a field; `place` holds the settings of its row and group."""
        settings, split = self._one_model(place, column), column.split
        if column.layers:
            layers: dict[str, list[float]] = {}
            for row in self._measured.rows(column.metric, settings, bucket=...):
                if row.bucket not in (None, _EMBEDDINGS):
                    layers.setdefault(row.bucket, []).append(row.value)
            return min(layers.values(), key=fmean, default=[])
        if column.lengths and (runs := self._measured.finished(settings)):
            assert split in ("valid", "test")
            bounds = length_bounds(runs[0].config, column.lengths)
            if bounds:
                metric = self._measured.metric(column.metric, split)
                found = (self._measured.score_at(x, metric, split, bounds) for x in runs)
                return [value for value in found if value is not None]
            if column.lengths == "beyond":
                return []
        if text is None and split:
            text = mean_of(split)
        part = self._spec.buckets.get(place.get(_BUCKET, "")) or column.bucket
        rows = self._measured.rows(column.metric, settings, split=text, bucket=part)
        if not rows and split:  # lengths, and what has no files, are of all files together
            rows = self._measured.rows(column.metric, settings, split=split, bucket=part)
        return [row.value for row in rows]

    def _settings(self, place: Where, column: ColumnSpec) -> Where:
        settings = place | self._spec.only | column.only
        return {axis: setting for axis, setting in settings.items() if axis != _BUCKET}

    def _one_model(self, place: Where, column: ColumnSpec) -> Where:
        """Return the settings of a field, after checking that its runs are seeds of one model."""
        settings = self._settings(place, column)
        remedy = f"add it to rows, across or only of the table {self._spec.title!r}"
        self._measured.require_one_model(settings, remedy)
        return settings

    def _column(self, group: Where, column: ColumnSpec) -> list[Entry]:
        shown = self._spec.columns.get(column.gain_of, column)
        tests = self._tests(group, shown)
        differing = significant(tests)
        entries = []
        show = f"+.{self._measured.metric(shown.metric).decimals}f"
        for at, place in enumerate(self._lines):
            if column.gain_of:
                has_gain = at in tests and tests[at].comparison
                entries.append(number(tests[at].mean if has_gain else None, show))
            else:
                mark = MARK if at in differing else ""
                entry = self._field(place | group, column, mark)
                entries.append(with_p_value(entry, tests.get(at)))
        return entries

    def _field(self, place: Where, column: ColumnSpec, mark: str = "") -> Entry:
        settings = self._settings(place, column)
        if column.difference:
            sides = [self._spec.columns[title] for title in column.difference]
            first, second = (self._field(place, side).value for side in sides)
            decimals = max(self._measured.metric(side.metric).decimals for side in sides)
            lost = None if first is None or second is None else first - second
            return number(lost, f".{decimals}f")
        if column.count:
            return self._count(place, column)
        if column.metric in FACTS:
            facts = {_fact(column.metric, x.config) for x in self._measured.runs(settings)}
            if len(facts) > 1:
                self._one_model(place, column)  # which names the axis
            return Entry(text=facts.pop()) if facts else number(None)
        metric = self._measured.metric(column.metric)
        decimals = 3 if column.layers else metric.decimals
        show = "whole number" if metric.is_whole else column.show
        return summary(self._values(place, column), show, mark, decimals=decimals)

    def _count(self, place: Where, column: ColumnSpec) -> Entry:
        settings = self._settings(place, column)
        every = self._measured.runs(settings)
        if any(planned.config.data != every[0].config.data for planned in every):
            self._one_model(place, column)  # which names the axis
        runs = (self._measured.finished if self._trained else self._measured.runs)(settings)
        if not runs:
            return number(None)
        data = self._measured.prepared(runs[0])
        split = column.split or "train"
        assert split != "each set"
        lengths = data.store(split).source_lengths
        values = {
            "kept": len(lengths),
            "read": data.report.splits[split].read,
            "tokens": int(lengths.sum(dtype=np.int64)),
            "longest": int(lengths.max()),
        }
        return number(values[column.count or "kept"], ",")

    def _each_set(self, group: Where, column: ColumnSpec) -> dict[str, list[Entry]]:
        """Return a column for each file of the validation and test sets, and one for their mean."""
        corpus, texts = self._measured.runs()[0].config.data.corpus, []
        decimals = self._measured.metric(column.metric).decimals
        for split in ("valid", "test"):  # as `run.measures.score` names them
            files = labels(corpus, split)
            texts += [f"{split}/{label}" for label in files] if len(files) > 1 else [split]

        def field(place: Where, text: str) -> Entry:
            values = self._values(place | group, column, text)
            return summary(values, column.show, decimals=decimals)

        columns = {text: [field(place, text) for place in self._lines] for text in texts}
        values = ([field.value for field in row] for row in zip(*columns.values(), strict=True))
        means = (None if None in row else fmean(row) for row in values)
        columns["average"] = [number(mean, f".{decimals}f") for mean in means]
        return columns

    def _tests(self, group: Where, column: ColumnSpec) -> dict[int, Part]:
        """Return row → comparison with the baseline, for columns of a split."""
        if not self._spec.is_tested(column):
            return {}
        assert column.split in ("valid", "test")
        tests = {}
        for at, place in enumerate(self._lines):
            settings = self._one_model(place | group, column)
            against = settings | self._spec.baseline
            runs = self._measured.runs(settings)
            if settings == against or not runs:
                continue
            self._measured.require_baseline(against, f"the table {self._spec.title!r}")
            bounds = length_bounds(runs[0].config, column.lengths) if column.lengths else None
            if column.lengths == "beyond" and not bounds:
                continue
            done, theirs = map(self._measured.finished, (settings, against))
            if bounds and done and self._measured.has_few(done[0], column.split, bounds):
                self._leave_untested(place | group, column, f"fewer than {FEW_SEGMENTS} sentences")
                continue
            part = tests[at] = self._measured.compare(
                settings, against, column.split, metric=column.metric, lengths=bounds
            )
            if part.metric and part.tested is not None:
                self._compared[part.metric] = None
            elif self._values(place | group, column):
                reason = part.reason or f"fewer than {MIN_SEEDS} seeds"
                if not {x.seed for x in done} & {x.seed for x in theirs}:
                    baseline = settings_label(self._spec.baseline)
                    reason = f"no finished run of {baseline} with the same seed"
                self._leave_untested(place | group, column, reason)
        return tests

    def _leave_untested(self, place: Where, column: ColumnSpec, reason: str) -> None:
        title = next(title for title, x in self._spec.columns.items() if x is column)
        lines = self._untested.setdefault(reason, {})
        lines.setdefault(" ".join(place.values()), {})[title] = None

    def _names(self, place: Where) -> tuple[str, ...]:
        if not self._spec.labels:
            return tuple(place.values())
        [setting] = place.values()
        return self._spec.labels.get(setting, (setting,) + ("",) * (len(self._spec.header) - 1))

    def _signatures(self) -> Iterator[str]:
        """Yield the signature of each score that a column shows, which it is reported with."""
        metrics = [x.metric for x in self._spec.columns.values() if not (x.count or x.difference)]
        for metric in dict.fromkeys(metrics):
            rows = [row for row in self._measured.results if row.metric == metric and row.signature]
            if found := dict.fromkeys(row.signature for row in rows):
                yield f"{metric}: {' or '.join(map(str, found))}"

    def _notes(self) -> Iterator[str]:
        if not all(column.count for column in self._spec.columns.values()):
            several = len({planned.seed for planned in self._measured.runs()}) > 1
            yield "mean ± standard deviation over seeds" if several else "one seed"
            if self._trained and (left := self._measured.unfinished_note(self._spec.only)):
                yield from left
                if any(column.gain_of for column in self._spec.columns.values()):
                    yield "gains are over the seeds that both sides have finished"
        if self._spec.baseline:
            if self._compared:
                yield mark_note(settings_label(self._spec.baseline), [*self._compared])
            num_tested = sum(map(self._spec.is_tested, self._spec.columns.values()))
            for reason, lines in self._untested.items():
                names = (
                    x if len(titles) == num_tested else f"{x} in {' and '.join(titles)}"
                    for x, titles in lines.items()
                )
                yield f"not tested ({reason}): {', '.join(names)}"
        yield from self._spec.notes
        if note := self._spec.profile_notes.get(self._measured.profile):
            yield note
        yield from self._signatures()
        if self._spec.buckets:
            yield from usable(self._measured.runs()[0].measures)[1]


def _fact(name: str, config: Config) -> str:
    """Return one of `check.FACTS`."""
    if name == "trained lengths":
        return bounds_label(trained_lengths(config))
    kinds = (find_kind(part.kind).build for part in config.position.scheme.parts)
    return "yes" if all(kind.shift_invariant for kind in kinds) else "no"


def published_table(table: TableSpec, paper: PublishedSpec, ours: DocumentTable) -> DocumentTable:
    """Return the paper's table.

    Raises:
        ShapeshiftError: a row has more or fewer fields than the header.
    """
    header = paper.header or ours.header
    for row in paper.rows:
        if len(row) != len(header):
            raise ShapeshiftError(
                f"published of the table {table.title!r}: {list(row)} has {len(row)} fields for"
                f" {len(header)} columns ({', '.join(header)}); complete it, or give a header"
            )
    width = len(table.header or table.rows)
    return DocumentTable(
        name=f"{ours.name}-paper",
        title=paper.title or f"{table.title}, in the paper",
        origin="paper",
        header=header,
        rows=tuple(
            (*words(*map(_name, row[:width])), *(_given(x, paper.decimals) for x in row[width:]))
            for row in paper.rows
        ),
        notes=paper.notes,
    )


def curves(measured: Measured, spec: CurvesSpec, study: str) -> Content:
    """Return a table and a figure for each setting of `spec.each`, with a line for each run; their
    names begin with the study's: Kiyono et al. 2021 (SHAPE), Figures 8 and 9."""
    content = Content()
    key, unit = ("update", 1) if spec.against == "updates" else ("elapsed_s", 60)
    for setting in measured.settings(spec.each):
        rows, lines = [], []
        for name in measured.settings(spec.lines):
            axes = {spec.each: setting, spec.lines: name}
            measured.require_one_model(axes, "add it to only of the study, or leave curves out")
        notes = ["time: wall-clock time; other programs may have run"]
        notes += measured.unfinished_note({spec.each: setting})
        for planned in measured.finished({spec.each: setting}):
            name = planned.axes[spec.lines]
            log = measured.validations(planned)
            if not log:
                notes.append(f"no validation in the log of {name} seed {planned.seed}")
                continue
            perplexities = [[math.exp(line["valid_loss"])] for line in log]
            lines.append(Line(name, [line[key] / unit for line in log], perplexities))
            for line, [perplexity] in zip(log, perplexities, strict=True):
                update, time = number(line["update"], ","), number(line["elapsed_s"], ",.0f")
                own = words(name, str(planned.seed))
                rows.append((*own, update, time, number(perplexity, ".3f")))
        # It falls from thousands to a few: a linear axis would show the first updates alone.
        panel = Panel(lines, "validation perplexity", log=True, min_span=1.2)
        title = f"Validation perplexity against {spec.against}, {setting}"
        x_title = spec.against + " (minutes)" * (unit > 1)
        table = DocumentTable(
            name=re.sub(r"[^\w.+=, -]", "-", f"{study}-{setting}"),  # see `schema.PlainName`
            title=title,
            header=(spec.lines, "seed", "update", "time (s)", "perplexity"),
            rows=tuple(rows),
            notes=tuple(notes),
            figure=title if lines else "",
            drawing=draw_lines([panel], x_title) if lines else None,
        )
        content.tables.append(table)
    return content


def _name(given: Published) -> str:
    return "" if given is None else f"{given:g}" if isinstance(given, float) else str(given)


def _given(value: Published, decimals: int) -> Entry:
    if isinstance(value, str):
        return Entry(text=value)
    if isinstance(value, tuple):
        median, mean, stdev = (f"{each:.{decimals}f}" for each in value)
        return Entry(text=f"{mean} ± {stdev} (median {median})", value=value[1])
    return number(value, "," if isinstance(value, int) else f",.{decimals}f")
