"""A study of a paper as data: which runs, which tables and plots, which claims.

A study is a YAML file, such as `studies/shaw/table2.yaml`; `study.build` makes its content.
Besides `tables`, a study may have `by_length` (a metric by source length), `curves` (validation
perplexity during training) and `analyses` (functions of this package or of your own). Numbers of
the paper stand here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from shapeshift._system.errors import unknown
from shapeshift._system.schema import PlainName, Strict
from shapeshift.run.measures import BLEU
from shapeshift.study.grid import Condition, Grid, GridConfig, Name, unknown_name

ALL = "*"
"""In `each` of a claim: every setting of the axis."""

Split = Literal["valid", "test"]
Show = Literal["mean", "mean ± stdev", "mean ± stdev (median)", "whole number"]
Lengths = Literal["inside", "beyond"]
"""Test sentences whose source length training has shown, or those whose length it has not."""

Rule = Literal["better", "no worse", "equivalent", "threshold"]
_Named = TypeVar("_Named", bound=Mapping[str, str | tuple[str, ...]])


def _check(axis: str, info: ValidationInfo, settings: Iterable[str] = ()) -> str:
    """Check names against the grid, which is known once a file is read."""
    grid: Grid | None = (info.context or {}).get("grid")
    if grid and axis and (problem := unknown_name(grid.config.axes, axis, settings)):
        raise ValueError(problem)
    return axis


def _check_named(named: _Named, info: ValidationInfo) -> _Named:
    for axis, given in named.items():
        settings = (given,) if isinstance(given, str) else given
        _check(axis, info, () if settings == (ALL,) else settings)
    return named


def _check_profile(profile: str, info: ValidationInfo) -> str:
    grid: Grid | None = (info.context or {}).get("grid")
    if grid and profile not in grid.config.profiles:
        raise ValueError(unknown("the grid has no profile", profile, grid.config.profiles))
    return profile


Axis = Annotated[str, AfterValidator(_check)]
ProfileName = Annotated[Name, AfterValidator(_check_profile)]
Where = Annotated[dict[Name, Name], AfterValidator(_check_named)]
"""Axis → one setting of it."""

WhereAny = Annotated[Condition, AfterValidator(_check_named)]
"""Axis → some of its settings."""

Published = int | float | tuple[float, float, float] | str | None
"""A number, as it is if it is whole; median, mean and standard deviation; text; a dash."""


_OF_METRICS = ("metric", "only", "show")
_USED: dict[str, tuple[str, ...]] = {
    "gain_of": (),
    "difference": (),
    "count": ("only", "split"),
    "layers": _OF_METRICS,
    "lengths": (*_OF_METRICS, "split"),
    "bucket": (*_OF_METRICS, "split"),
}
"""Key of a column → those that have an effect next to it."""


class ColumnSpec(Strict):
    """A column of a table. It is left out in profiles where its runs do not exist. A key that has
    no effect next to another one is refused.

    Attributes:
        metric: name of a result, such as `BLEU`, `speed` or `parameters`; `shift invariant`
            shows whether the library declares the position shift invariant, `trained lengths` the
            source lengths in training.
        only: further settings of the runs, on axes that are in neither `rows` nor `across`.
        split: the text that was translated; the score is the mean over its files. `each set` makes
            a column for each file of both splits, and one for their average; `null` is for
            results of a run.
        bucket: part of a result, such as `length 256` of `step_memory`.
        lengths: only sentences of `split` inside or beyond the training lengths, for a metric that
            keeps examples.
        layers: `lowest`, for a result with one value for each layer: show that of the layer
            where it is lowest, without the embeddings (`layer 0`).
        count: instead of a metric: show a number of the prepared data of `split` (which may be
            `train`): pairs kept, pairs read, source tokens, or the length of the longest source.
        show: how the values of several seeds are shown in one field.
        gain_of: instead of a metric: show the gain over the baseline in the named column: the
            difference, above 0 where the value is better.
        difference: instead of a metric: show the first of these columns minus the second; each is
            of a metric or a count.
    """

    metric: str = BLEU.name
    only: Where = Field(default_factory=dict)
    split: Literal["valid", "test", "train", "each set"] | None = None
    bucket: str | None = None
    lengths: Lengths | None = None
    layers: Literal["lowest"] | None = None
    count: Literal["kept", "read", "tokens", "longest"] | None = None
    show: Show = "mean ± stdev"
    gain_of: str = ""
    difference: tuple[str, str] | None = None

    @property
    def is_metric(self) -> bool:
        """Whether the column shows a result, in one column of the table."""
        is_other = self.count or self.gain_of or self.difference
        return not is_other and self.split != "each set"

    @model_validator(mode="after")
    def _fits_together(self) -> ColumnSpec:
        given = self.model_dump(exclude_defaults=True, exclude={} if self.only else {"only"})
        used = {key: {key, *others} for key, others in _USED.items() if key in given}
        if self.split == "each set":
            used["split: each set"] = {"split", *_OF_METRICS}
        for key, allowed in used.items():
            if unused := given.keys() - allowed:
                raise ValueError(f"{key}: leave out {', '.join(sorted(unused))}: no effect with it")
        if self.split == "train" and not self.count:
            raise ValueError("split: train is for count; valid and test are translated")
        return self


class PlotSpec(Strict):
    """A plot of a table, with a line for each setting of `across`, or a single line.

    Attributes:
        title: caption.
        x: axis of the rows.
        x_title: title of the horizontal axis of the plot; by default the name of `x`.
        y: title of the column that is drawn, of a metric.
    """

    title: str
    x: str
    x_title: str = ""
    y: str


class PublishedSpec(Strict):
    """A table as published in the paper.

    Attributes:
        title: caption; by default that of our table.
        header: titles of its columns; by default those of our table.
        rows: a list of fields for each row: first the fields that name the row, then one for each
            column.
        decimals: number of decimals.
        notes: lines below the table.
    """

    title: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Published, ...], ...]
    decimals: int = 2
    notes: tuple[str, ...] = ()


class TableSpec(Strict):
    """A table of results.

    Attributes:
        name: name of its files; by default that of the study file, with a number if the name is
            taken.
        title: caption.
        rows: axes of the grid; the table has a row for each combination of their settings that has
            runs.
        buckets: name → part of the results, or `null` for all of them; the table has a row for
            each.
        only: settings of the runs in the table; by default all runs.
        header: titles of the columns that name a row; by default the axes.
        labels: setting of the only axis in `rows` → fields that name its row, one for each of
            `header`.
        across: axis with one group of columns for each of its settings.
        columns: title → column.
        baseline: settings of the row that the other rows are tested against, in each column of a
            split. For axes that are not named here, the baseline has the setting of the tested row.
        plot: a figure of the table.
        published: the paper's table, which is shown next to ours.
        notes: lines below the table.
        profile_notes: profile → a line below the table in this profile.
    """

    name: PlainName | None = None
    title: str
    rows: tuple[Axis, ...] = Field(min_length=1)
    buckets: dict[Name, Name | None] = Field(default_factory=dict)
    only: Where = Field(default_factory=dict)
    header: tuple[str, ...] = ()
    labels: dict[Name, tuple[str, ...]] = Field(default_factory=dict)
    across: Axis = ""
    columns: dict[str, ColumnSpec] = Field(min_length=1)
    baseline: Where = Field(default_factory=dict)
    plot: PlotSpec | None = None
    published: PublishedSpec | None = None
    notes: tuple[str, ...] = ()
    profile_notes: dict[ProfileName, str] = Field(default_factory=dict)

    def is_tested(self, column: ColumnSpec) -> bool:
        """Return whether a column is tested against the baseline; only a metric of a whole split
        is."""
        is_of_split = column.is_metric and column.split in ("valid", "test")
        return bool(self.baseline) and is_of_split and not column.bucket and not self.buckets

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> TableSpec:
        if len(set(self.rows)) < len(self.rows):
            raise ValueError("rows: name each axis once")
        if self.labels and self.buckets:
            raise ValueError("labels do not name buckets; leave one of the two out")
        if self.labels and len(self.rows) != 1:
            raise ValueError(f"labels need one axis in rows, got {len(self.rows)}")
        _check(self.rows[0], info, self.labels)
        width, expected = len(self.header or self.rows), len(self.rows) + bool(self.buckets)
        if not self.labels and width != expected:
            raise ValueError(f"header has {width} titles for {expected} axes of rows")
        for setting, fields in self.labels.items():
            if len(fields) != width:
                raise ValueError(f"labels.{setting} has {len(fields)} fields for {width} titles")
        if self.across in (*self.rows, *self.only):
            raise ValueError(f"across: {self.across} is also in rows or only; name it once")
        for title, column in self.columns.items():
            if problem := self._problem(column):
                raise ValueError(f"columns.{title}: {problem}")
        if self.baseline and not any(map(self.is_tested, self.columns.values())):
            raise ValueError(
                "baseline: no column is tested: that takes a metric of split: valid or test,"
                " without buckets; add one, or leave baseline out"
            )
        if self.plot:
            if self.plot.x not in self.rows:
                raise ValueError(f"plot: {unknown('no axis of rows', self.plot.x, self.rows)}")
            if self.plot.y not in self.columns:
                raise ValueError(f"plot: {unknown('no column', self.plot.y, self.columns)}")
            if self.buckets or not self.columns[self.plot.y].is_metric:
                raise ValueError(
                    "plot: y needs a column of a metric, not of count, gain_of, difference or each"
                    " set, in a table without buckets"
                )
        counts = any(column.count for column in self.columns.values())
        if self.published and not self.published.header and self.across and counts:
            raise ValueError(
                "published: give a header: numbers of columns with count depend on the data"
            )
        return self

    def _problem(self, column: ColumnSpec) -> str:
        """Return the error for a column that does not fit the table; empty if it fits."""
        if column.gain_of:
            if column.gain_of not in self.columns or not self.baseline:
                return "gain_of needs a column and a baseline"
            if not self.is_tested(self.columns[column.gain_of]):
                return "gain_of needs a column of a metric of split: valid or test, without buckets"
        if column.lengths and column.split not in ("valid", "test"):
            return "lengths is for split: valid or test"
        if self.buckets and (column.bucket or column.lengths or column.layers):
            return "bucket, lengths and layers are for tables without buckets"
        if axes := column.only.keys() & {*self.rows, self.across}:
            return f"only: {', '.join(sorted(axes))} is in rows or across; name it once"
        for title in column.difference or ():
            side = self.columns.get(title)
            if side is None or not (side.is_metric or side.count):
                return f"difference needs two columns of a metric or count, and {title!r} is none"
        return ""


class ByLengthSpec(Strict):
    """A metric by source length: a table, and a figure with a line for each setting of an axis.

    Attributes:
        name: name of the files of both; by default that of the study file, with a number if the
            name is taken.
        title: caption of both.
        lines: axis with a column of the table, and a line of the figure, for each of its settings.
        only: settings of the runs, on other axes than `lines` and `panels`.
        panels: axis with one panel of the figure for each of its settings.
        splits: the sentences of these splits are taken together.
        metric: that keeps examples, see [Metrics](#metrics).
        gain_over: show the gain over this setting of `lines`: the difference, above 0 where the
            value is better.
        tested: mark the lengths at which a line differs significantly from the first one, or from
            that of `gain_over`, on one split.
        notes: lines below the table.
    """

    name: PlainName | None = None
    title: str
    lines: Axis
    only: Where = Field(default_factory=dict)
    panels: Axis = ""
    splits: tuple[Split, ...] = Field(default=("test",), min_length=1)
    metric: str = BLEU.name
    gain_over: str = ""
    tested: bool = False
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> ByLengthSpec:
        _check(self.lines, info, (self.gain_over,) if self.gain_over else ())
        if len(set(self.splits)) < len(self.splits):
            raise ValueError("splits: name each split once")
        if axes := {self.lines, self.panels} & self.only.keys():
            raise ValueError(f"only: {', '.join(sorted(axes))} is in lines or panels already")
        if self.panels == self.lines:
            raise ValueError("panels: name another axis than in lines")
        if self.tested and len(self.splits) != 1:
            raise ValueError("tested needs one split")
        return self


class CurvesSpec(Strict):
    """Validation perplexity during training: a table, and a figure with a line for each run.

    Attributes:
        each: axis with a table and a figure for each of its settings.
        lines: axis with a look of the lines for each of its settings.
        against: what the horizontal axis shows.
    """

    each: Axis
    lines: Axis
    against: Literal["updates", "training time"]


class ClaimSpec(Strict):
    """A claim and the results that can test it.

    Attributes:
        claim: one sentence.
        rule: how the verdict is formed.
        split: the text that was translated.
        minus: a second translated text; the claim is then about the loss from `split`, which has to
            be `original-order`, to this text.
        lengths: only use sentences inside or beyond the training lengths of the tested runs; or
            `each`: the claim must hold in each bucket of `evaluation.length_buckets` that has
            enough sentences.
        metric: what is compared; for `rule: threshold` it may be a value that an analysis returns.
        margin: for `no worse` and `equivalent`, in the unit of the metric; without a default for
            other metrics than BLEU.
        at_most, at_least: the limit of `threshold`; give one of the two.
        test: settings of the tested runs.
        against: settings in which the compared runs differ from the tested runs.
        each: axis → settings; the claim must hold for all of their combinations.
        pairs: further pairs (test, against) for which the claim must hold.
        effect: in place of `profiles`, for a claim of a paper: the smallest difference of a part in
            the paper, or distance to the limit, in the unit of the metric; 0 if the paper gives
            none. It decides which profiles test the claim: `paper`, and those whose runs would
            find it, see `study.power`.
        profiles: profiles whose models, data and training lengths can test the claim; by default
            all.
        expected: the expected result, such as the paper's numbers, which is shown next to ours.
    """

    claim: str
    rule: Rule
    split: Literal["valid", "test", "original-order"] = "test"
    minus: Literal["swapped-order"] | None = None
    lengths: Literal["inside", "beyond", "each"] | None = None
    metric: str = BLEU.name
    margin: float = Field(default=0.5, gt=0)
    at_most: float | None = None
    at_least: float | None = None
    test: Where = Field(default_factory=dict)
    against: Where = Field(default_factory=dict)
    each: WhereAny = Field(default_factory=dict)
    pairs: tuple[tuple[Where, Where], ...] = ()
    effect: float | None = Field(default=None, ge=0)
    profiles: tuple[ProfileName, ...] = ()
    expected: str = ""

    @property
    def has_margin(self) -> bool:
        """Whether its rule is about a margin."""
        return self.rule in ("no worse", "equivalent")

    @property
    def limits(self) -> tuple[float, float]:
        """What a difference or value lies between where the claim holds."""
        if self.rule == "threshold":
            low, high = self.at_least, self.at_most
            return -math.inf if low is None else low, math.inf if high is None else high
        low = -self.margin if self.has_margin else 0.0
        return low, self.margin if self.rule == "equivalent" else math.inf

    @property
    def comparisons(self) -> list[tuple[dict[str, str], dict[str, str]]]:
        """The pairs (test, against)."""
        return [*([(self.test, self.against)] if self.against else []), *self.pairs]

    @model_validator(mode="after")
    def _fits_together(self) -> ClaimSpec:
        if self.effect is not None and self.profiles:
            raise ValueError("effect says which profiles can test the claim; leave out profiles")
        limits = [limit for limit in (self.at_most, self.at_least) if limit is not None]
        if len(limits) != (self.rule == "threshold"):
            raise ValueError("threshold needs at_most or at_least, the other rules neither")
        is_given = "margin" in self.model_fields_set
        if is_given and not self.has_margin:
            raise ValueError(f"{self.rule} has no margin; leave it out")
        if self.has_margin and not is_given and self.metric != BLEU.name:
            raise ValueError(
                f"{self.rule}: give a margin in the unit of {self.metric}; the default is for"
                f" {BLEU.name}"
            )
        if self.lengths and self.split == "original-order":
            raise ValueError("lengths needs split: valid or test")
        if self.rule == "threshold":
            is_of_part = self.lengths or self.minus or self.split == "original-order"
            if is_of_part or self.against or self.pairs:
                raise ValueError(
                    "threshold is about all of valid or test, and compares with a number; leave out"
                    " lengths, minus, split: original-order, against and pairs"
                )
        elif self.minus and self.split != "original-order":
            raise ValueError("minus: swapped-order needs split: original-order")
        elif not (self.pairs or self.against):
            raise ValueError(f"{self.rule} needs `test` and `against`, or `pairs`")
        elif self.test and not self.against:
            raise ValueError("test: add against, or leave it out: pairs have tests of their own")
        for test in (self.test, *(test for test, _ in self.pairs)):
            if axes := self.each.keys() & test.keys():
                raise ValueError(f"each: {', '.join(sorted(axes))} is also in test; name it once")
        for test, against in self.comparisons:
            if test | against == test:
                raise ValueError(f"compares runs with themselves: {test} against {against}")
        return self


class StudySpec(Strict):
    """A study: its runs, tables and figures, and the claims to test.

    Attributes:
        title: title of the study.
        grid: the runs, or the name of a study whose runs they are: `STUDY`, a file next to this
            one, `PAPER:STUDY`, or the path of a YAML file, relative to this one.
        trained: whether the study needs trained runs; if not, prepared data suffice.
        only: settings of the runs that the study needs; by default all runs.
        tables: tables of results.
        by_length: a metric by source length, each as a table and a figure.
        curves: validation perplexity during training, as tables and figures.
        analyses: functions, as `module:function`. Each is called with the study and returns a
            `study.document.Content`: tables with figures, and values for claims.
        claims: claims to test.
    """

    title: str
    grid: str | GridConfig
    trained: bool = True
    only: WhereAny = Field(default_factory=dict)
    tables: tuple[TableSpec, ...] = ()
    by_length: tuple[ByLengthSpec, ...] = ()
    curves: CurvesSpec | None = None
    analyses: tuple[str, ...] = ()
    claims: tuple[ClaimSpec, ...] = ()

    @field_validator("grid")
    @classmethod
    def _find_grid(cls, given: str | GridConfig, info: ValidationInfo) -> str | GridConfig:
        """Find the grid; the names in the other keys are checked against it."""
        if info.context:
            info.context["grid"] = info.context["find_grid"](given)
        return given

    @model_validator(mode="after")
    def _has_content(self) -> StudySpec:
        if not (self.tables or self.by_length or self.curves or self.analyses):
            raise ValueError("needs one of tables, by_length, curves and analyses")
        for place, settings in self._chosen():
            for axis, setting in settings.items():
                if setting not in self.only.get(axis, (setting,)):
                    raise ValueError(
                        f"{place}: {axis}: {setting} is not in `only` of the study"
                        f" ({', '.join(self.only[axis])}), and would have no runs"
                    )
        return self

    def _chosen(self) -> Iterator[tuple[str, Where]]:
        """Yield the settings of each part of the study that it takes runs from, by its key."""
        for at, table in enumerate(self.tables):
            yield f"tables.{at}.only", table.only
            for title, column in table.columns.items():
                yield f"tables.{at}.columns.{title}.only", column.only
        for at, figure in enumerate(self.by_length):
            yield f"by_length.{at}.only", figure.only
        for at, claim in enumerate(self.claims):
            yield f"claims.{at}.test", claim.test
            for test, _ in claim.pairs:
                yield f"claims.{at}.pairs", test
