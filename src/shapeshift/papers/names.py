"""Checks what a study's file names against its grid, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from shapeshift.config_errors import shown_place
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Cell, Condition, GridConfig
from shapeshift.papers.metrics import FACTS, METRICS
from shapeshift.papers.spec import ALL, DEVIATION, ClaimSpec, ColumnSpec, ItemSpec

Place = Sequence[str | int]


def check_names(spec: ItemSpec, grid: GridConfig, path: Path) -> None:
    """Check the axes, settings, scales and measurements that an item names against its grid.

    Args:
        spec: the item.
        grid: what its grid says.
        path: of the item's file, for the message.

    Raises:
        ShapeshiftError: once for all names that the grid does not have, and for all measurements
            that none of its steps makes.
    """
    problems = [
        f"{shown_place(place)}: {problem}"
        for place, problem in chain(_metric_problems(spec, grid), _step_problems(spec, grid))
    ]
    problems += [
        f"{shown_place(place)}: {problem}"
        for place, condition in _named(spec)
        for axis, settings in condition.items()
        if (problem := _unknown(grid, axis, settings))
    ]
    for number, claim in enumerate(spec.claims):
        for scale in claim.scales:
            if scale not in grid.scales:
                hint = nearest(scale, grid.scales)
                problems.append(
                    f"{shown_place(['claims', number, 'scales'])}: the grid has no scale"
                    f" {scale!r}{hint} (it has {', '.join(grid.scales)})"
                )
    if problems:
        raise ShapeshiftError("; ".join(problems), path=path)


def _named(spec: ItemSpec) -> Iterator[tuple[Place, Condition]]:
    """Yield the place in the file and the axes and settings that it names."""
    yield ["only"], spec.only
    if spec.curves:
        yield ["curves"], {spec.curves.each: (), spec.curves.systems: ()}
    for number, table in enumerate(spec.tables):
        place: Place = ("tables", number)
        yield (*place, "rows"), dict.fromkeys(table.rows, ())
        yield (*place, "across"), {table.across: ()} if table.across else {}
        yield (*place, "only"), _condition(table.only)
        yield (*place, "baseline"), _condition(table.baseline)
        yield (*place, "labels"), {table.rows[0]: tuple(table.labels)} if table.labels else {}
        for title, column in table.columns.items():
            only = {} if column.grid else _condition(column.only)
            yield (*place, "columns", title, "only"), only
    for number, figure in enumerate(spec.by_length):
        if not figure.grid:
            place = ("by_length", number)
            yield (*place, "systems"), {figure.systems: ()}
            yield (*place, "panels"), {figure.panels: ()} if figure.panels else {}
            yield (*place, "only"), _condition(figure.only)
            gain_over = {figure.systems: figure.gain_over} if figure.gain_over else {}
            yield (*place, "gain_over"), _condition(gain_over)
    for number, claim in enumerate(spec.claims):
        place = ("claims", number)
        yield (*place, "test"), _condition(claim.test)
        yield (*place, "against"), _condition(claim.against)
        each = {axis: () if names == (ALL,) else names for axis, names in claim.each.items()}
        yield (*place, "each"), each
        for pair in claim.pairs:
            for side in pair:
                yield (*place, "pairs"), _condition(side)


def _condition(settings: Mapping[str, str]) -> Condition:
    return {axis: (setting,) for axis, setting in settings.items()}


def _unknown(grid: GridConfig, axis: str, settings: Sequence[str]) -> str:
    """Return what is wrong with the name of an axis or of its settings; empty if nothing is."""
    if axis not in grid.axes:
        known = ", ".join(grid.axes)
        return f"the grid has no axis {axis!r}{nearest(axis, grid.axes)} (it has {known})"
    for setting in settings:
        if setting not in grid.axes[axis]:
            hint, known = nearest(setting, grid.axes[axis]), ", ".join(grid.axes[axis])
            return f"the axis {axis} has no setting {setting!r}{hint} (it has {known})"
    return ""


def _metric_problems(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str]]:
    """Yield the place of each measurement that cannot be asked for so, and why."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if not (column.count or column.gain_of or column.difference):
                yield from (
                    (("tables", number, "columns", title, key), problem)
                    for key, problem in _of_column(column, grid)
                )
    for number, claim in enumerate(spec.claims):
        if problem := _of_claim(spec, claim, grid):
            yield ["claims", number, "metric"], problem


def _of_column(column: ColumnSpec, grid: GridConfig) -> Iterator[tuple[str, str]]:
    """Yield the key and what is wrong with it."""
    if problem := _unknown_metric(column.metric, grid):
        yield "metric", problem
    metric = METRICS.get(column.metric)
    if metric is None or column.lengths:
        return
    if metric.is_score:
        if column.split is None and not column.bucket:
            yield "split", f"missing; say which text {column.metric} is of: valid or test"
        return
    if column.split in ("valid", "test", "each set"):
        yield "split", f"{column.metric} is not measured on translations; leave split out"
    if metric.bucket and not (column.bucket or column.layers):
        yield "bucket", f"missing; {column.metric} has one, such as {metric.bucket!r}"


def _of_claim(spec: ItemSpec, claim: ClaimSpec, grid: GridConfig) -> str:
    if claim.metric == DEVIATION or spec.analyses:  # which name values as they like
        return ""
    if claim.rule != "threshold" and not claim.against_buckets and claim.metric != "BLEU":
        return f"{claim.rule} compares BLEU alone; leave metric out, or choose rule: threshold"
    return _unknown_metric(claim.metric, grid)


def _unknown_metric(name: str, grid: GridConfig) -> str:
    if _has_own_steps(grid) or name in METRICS or name in FACTS:
        return ""
    known = [*METRICS, *FACTS]
    return f"unknown {name!r}{nearest(name, known)} (known: {', '.join(known)})"


def _has_own_steps(grid: GridConfig) -> bool:
    """Return whether some step is a function of one's own, which names measurements as it likes."""
    return any(":" in step for step in grid.steps)


def _step_problems(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str]]:
    """Yield each place that needs a measure which is not among the steps of the grid."""
    for place, what, steps in _needed_steps(spec, grid):
        if steps and not set(steps) & set(grid.steps):
            yield (
                place,
                f"{what} needs the step {' or '.join(steps)}, which is not among the grid's steps"
                f" ({', '.join(grid.steps)}); add it there",
            )


def _needed_steps(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str, Sequence[str]]]:
    """Yield a place, what it shows, and the steps of which one makes that."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            metric = METRICS.get(column.metric)
            if column.count or column.gain_of or column.difference or column.grid or not metric:
                continue
            place: Place = ("tables", number, "columns", title)
            yield place, column.metric, () if _has_own_steps(grid) else metric.steps
            if metric.is_score and column.split:
                splits = ("valid", "test") if column.split == "each set" else (column.split,)
                yield from (((*place, "split"), split, _scoring(split)) for split in splits)
    for number, figure in enumerate(spec.by_length):
        for split in () if figure.grid else figure.splits:
            yield ["by_length", number], f"BLEU of {split}", _scoring(split)
    for number, claim in enumerate(spec.claims):
        metric = METRICS.get(claim.metric)
        if metric:
            own = () if _has_own_steps(grid) else metric.steps
            steps = _scoring(claim.split) if metric.is_score else own
            yield ["claims", number], f"{claim.metric} of {claim.split}", steps


def _scoring(split: str) -> tuple[str, ...]:
    return {"valid": ("score-valid",), "test": ("score-test",)}.get(split, ("swapped-order",))


def check_scores(spec: ItemSpec, cells: Iterable[Cell], path: Path) -> None:
    """Raise a `ShapeshiftError` for a score that the runs' `evaluation.metrics` do not name."""
    asked = {column.metric for table in spec.tables for column in table.columns.values()}
    asked |= {claim.metric for claim in spec.claims if claim.rule == "threshold"}
    scores = [name for name in METRICS if name in asked and METRICS[name].is_score]
    for config in (cell.config for cell in cells):
        computed = config.evaluation.metrics
        for name in scores:
            if METRICS[name].setting not in computed:
                wanted = ", ".join([*computed, METRICS[name].setting])
                raise ShapeshiftError(
                    f"{name} is not computed, as evaluation.metrics of the runs is"
                    f" [{', '.join(computed)}]; set it to [{wanted}] in the grid's base",
                    path=path,
                )
