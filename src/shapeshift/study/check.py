"""Checks, before anything runs, that the measures of a study's grid declare every result that the
study shows or tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift._system.own_modules import is_own
from shapeshift.data.config import Interpolate
from shapeshift.run.measures import BLEU, MEASURES, TRAIN, Metric, declared, find_measure
from shapeshift.study.by_length import bounds_label, ranges
from shapeshift.study.grid import Grid, PlannedRun
from shapeshift.study.measured import Axes, fits
from shapeshift.study.spec import ALL, ClaimSpec, ColumnSpec, StudySpec, TableSpec

FACTS = {
    "shift invariant": "whether the library declares the position shift invariant",
    "trained lengths": "source lengths in training",
}
"""Metrics that nothing measures: what the library declares, what the settings say."""

Scores = Callable[[], set[str]]

SWAPPED_ORDER = "original order"
"""Bucket of the scores that claims with `split: original-order` compare."""


def check_results(spec: StudySpec, grid: Grid, runs: Sequence[PlannedRun], path: Path) -> None:
    """Raise a `ShapeshiftError` for results that a study needs and some run lacks. A score that the
    grid only computes in other profiles is shown as a dash.

    Args:
        spec: of the study.
        grid: of the runs.
        runs: the study's, in one profile, with all overrides.
        path: of the study's file, for the error.
    """

    @cache
    def elsewhere() -> set[str]:  # asked for a score that a run lacks alone: it takes a second
        return set[str]().union(*grid.scored.values()) - grid.scored[runs[0].profile]

    lines = dict.fromkeys(_declared_twice(runs[0].measures), None)
    for place, axes, problem_of in _asked(spec, elsewhere):
        found = {run.name: problem_of(run) for run in runs if fits(run.axes, run.seed, axes)}
        lacking = {name: problem for name, problem in found.items() if problem}
        if lacking:
            name, problem = next(iter(lacking.items()))
            where = f" (in the run {name})" if len(lacking) < len(found) else ""
            lines[f"{place}: {problem}{where}"] = None
    if lines:
        raise ShapeshiftError("; ".join(lines), path=path)


def _declared_twice(measures: Sequence[str]) -> Iterator[str]:
    """Yield the metrics that two measures of a grid declare of the same text or part."""
    makers: dict[tuple[str, str | None, str | None], str] = {}
    for measure in (TRAIN, *dict.fromkeys(measures)):
        for metric in find_measure(measure).metrics:
            for place in product(metric.splits or (None,), metric.buckets or (None,)):
                first = makers.setdefault((metric.name, *place), measure)
                if first != measure:
                    yield f"measures: {first} and {measure} both declare {metric.name}; rename one"


def _asked(
    spec: StudySpec, elsewhere: Scores
) -> Iterator[tuple[str, Axes, Callable[[PlannedRun], str]]]:
    """Yield each place that shows or tests results, the settings of its runs, and a function that
    returns why a run lacks the result (empty if it has it)."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if not (column.count or column.gain_of or column.difference):
                place, axes = f"tables.{number}.columns.{title}", table.only | column.only
                yield place, axes, partial(_column_problem, table, column, elsewhere)
    for number, figure in enumerate(spec.by_length):
        for split in figure.splits:
            has_values = partial(_examples_problem, figure.metric, split, elsewhere)
            yield f"by_length.{number}", figure.only, has_values
    for number, claim in enumerate(spec.claims):
        each = {axis: wanted for axis, wanted in claim.each.items() if wanted != (ALL,)}
        problem_of = partial(_claim_problem, claim, elsewhere, bool(spec.analyses))
        yield f"claims.{number}", {**each, **claim.test}, problem_of


def _column_problem(
    table: TableSpec, column: ColumnSpec, elsewhere: Scores, run: PlannedRun
) -> str:
    name = column.metric
    if name in FACTS:
        if table.plot and column is table.columns[table.plot.y]:
            return f"{name} is no number; choose another column as y of plot"
        if column.split or column.bucket or column.layers:
            return f"{name} is a fact of the settings; leave split, bucket and layers out"
        return ""
    known = _declarations(name, run)
    if column.layers:
        layers = [x.buckets[0] for x in known if x.buckets and x.buckets[0].startswith("layer")]
        if known and not layers:
            return f"layers is for a result of each layer, such as shift_similarity, not {name}"
        return _problem(run, name, column.split, layers[0] if layers else None, elsewhere)
    if column.lengths:
        return _examples_problem(name, column.split, elsewhere, run)
    of_split = any(x.splits for x in known)
    if table.buckets and known and not of_split:
        return ""  # the parts that it has are shown
    buckets = [*table.buckets.values()] if of_split and table.buckets else [column.bucket]
    for split in ("valid", "test") if column.split == "each set" else (column.split,):
        for bucket in buckets:
            if problem := _problem(run, name, split, bucket, elsewhere):
                return problem
    return ""


def _examples_problem(name: str, split: str | None, elsewhere: Scores, run: PlannedRun) -> str:
    """Return why a run lacks per-example values; empty if it has them."""
    if problem := _problem(run, name, split, None, elsewhere):
        return problem
    found = next((x for x in declared(run.measures) if x.name == name and x.splits), None)
    if found is None or found.examples is None:
        return f"lengths: {name} keeps no values of examples; choose another metric"
    return ""


def _claim_problem(claim: ClaimSpec, elsewhere: Scores, has_analyses: bool, run: PlannedRun) -> str:
    name, known = claim.metric, _declarations(claim.metric, run)
    if has_analyses and not known and name not in FACTS:  # they name their values as they like
        if claim.rule == "threshold" and not (claim.test or claim.each):
            return ""
        return (
            f"{name} can only be a value of an analysis: use rule: threshold without test and each"
        )
    if claim.minus or claim.split == "original-order":
        if name != BLEU.name:
            return f"metric: original-order is scored with {BLEU.name}, not with {name}"
        problem = _problem(run, name, None, SWAPPED_ORDER, elsewhere)
        if not problem and not isinstance(run.config.data.recipe, Interpolate):
            problem = "split: original-order is of joined sentences; use the recipe interpolate"
        return problem
    if name in FACTS or (known and all(x.buckets for x in known)):
        return f"metric: {name} is not one number of a run; test a value that an analysis returns"
    if claim.rule in ("better", "no worse") and known and all(x.better is None for x in known):
        return f"metric: {name} does not say which values are better; use another rule"
    if claim.lengths:
        return _examples_problem(name, claim.split, elsewhere, run)
    of_split = any(x.splits for x in known)
    return _problem(run, name, claim.split if of_split else None, None, elsewhere)


def _declarations(name: str, run: PlannedRun) -> list[Metric]:
    """Return the declarations of a metric by the measures of a run, or else by any measure."""
    own = [each for each in declared(run.measures) if each.name == name]
    return own or [each for each in declared(MEASURES) if each.name == name]


def _problem(
    run: PlannedRun, name: str, split: str | None, bucket: str | None, elsewhere: Scores
) -> str:
    """Return why a run lacks a result for a split (or the run) and a bucket; empty if it has it.
    `elsewhere` returns the scores that are only computed in other profiles."""
    evaluation = run.config.evaluation
    lengths = [bounds_label(bounds) for bounds in ranges(evaluation.length_buckets)]
    makers = {
        measure: metric
        for measure in (TRAIN, *run.measures, *MEASURES)
        for metric in find_measure(measure).metrics
        if metric.name == name and metric.is_measured(split, bucket, lengths)
    }
    has = [metric for measure, metric in makers.items() if measure in (TRAIN, *run.measures)]
    known = _declarations(name, run)
    for metric in has or known:
        setting = metric.setting
        if setting and setting not in evaluation.metrics and setting not in elsewhere():
            return f"{name} is not computed; add {metric.setting} to evaluation.metrics of the runs"
    if has or any(is_own(each) and not find_measure(each).metrics for each in run.measures):
        return ""
    if makers:
        return (
            f"{name} needs the measure {' or '.join(makers)}, which is not among the grid's"
            f" measures ({', '.join(run.measures)}); add it there"
        )
    if not known:
        names = dict.fromkeys(x.name for x in declared((*run.measures, *MEASURES)))
        return unknown("metric: unknown", name, [*names, *FACTS])
    splits = dict.fromkeys(each for metric in known for each in metric.splits)
    if split and not splits:
        return f"split: {name} is not measured on translations; leave split out"
    if splits and split not in splits:
        named = f"say which text {name} is of" if split is None else f"{name} is not measured on it"
        return f"split: {'missing' if split is None else split}; {named}: valid or test"
    buckets = [each for metric in known for each in metric.buckets]
    if bucket is None:
        return f"bucket: missing; {name} has one, such as {buckets[0]!r}"
    if any(metric.by_length for metric in known):
        return unknown(
            f"bucket: {name} of {split} has none that is called", bucket, [*lengths, *buckets]
        )
    return f"bucket: {name} is not measured in parts; leave bucket out"
