"""Checks what a study's file names against its grid, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from shapeshift.config_errors import shown_place
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Cell, GridConfig, unknown_name
from shapeshift.papers.metrics import FACTS, METRICS, Metric
from shapeshift.papers.spec import ALL, ItemSpec

Place = Sequence[str | int]


def check_names(spec: ItemSpec, grid: GridConfig, path: Path) -> None:
    """Check the axes, settings, scales and measurements that an item names against its grid.

    Raises:
        ShapeshiftError: once for all names that the grid does not have, and for all measurements
            that none of its steps makes.
    """
    problems = [*_of_columns(spec, grid), *_of_claims(spec, grid)]
    for number, figure in enumerate(spec.by_length):
        for split in figure.splits:
            problems.append((["by_length", number], _lacks(grid, f"BLEU of {split}", split)))
    for place, named in _named(spec):
        for axis, given in named.items():
            settings = (given,) if isinstance(given, str) else given
            problems.append((place, unknown_name(grid.axes, axis, settings)))
    lines = [f"{shown_place(place)}: {problem}" for place, problem in problems if problem]
    if lines:
        raise ShapeshiftError("; ".join(lines), path=path)


def _named(spec: ItemSpec) -> Iterator[tuple[Place, Mapping[str, str | Sequence[str]]]]:
    """Yield the place in the file and the axes that it names, with one setting or several."""
    yield ["only"], spec.only
    if spec.curves:
        yield ["curves"], {spec.curves.each: (), spec.curves.systems: ()}
    for number, table in enumerate(spec.tables):
        place: Place = ("tables", number)
        yield (*place, "rows"), dict.fromkeys(table.rows, ())
        yield (*place, "across"), {table.across: ()} if table.across else {}
        yield (*place, "only"), table.only
        yield (*place, "baseline"), table.baseline
        yield (*place, "labels"), {table.rows[0]: tuple(table.labels)} if table.labels else {}
        for title, column in table.columns.items():
            yield (*place, "columns", title, "only"), column.only
    for number, figure in enumerate(spec.by_length):
        place = ("by_length", number)
        yield (*place, "systems"), {figure.systems: ()}
        yield (*place, "panels"), {figure.panels: ()} if figure.panels else {}
        yield (*place, "only"), figure.only
        gain_over = {figure.systems: figure.gain_over} if figure.gain_over else {}
        yield (*place, "gain_over"), gain_over
    for number, claim in enumerate(spec.claims):
        place = ("claims", number)
        yield (*place, "test"), claim.test
        yield (*place, "against"), claim.against
        each = {axis: () if names == (ALL,) else names for axis, names in claim.each.items()}
        yield (*place, "each"), each
        for pair in claim.pairs:
            for side in pair:
                yield (*place, "pairs"), side


def _of_columns(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str]]:
    """Yield the places of measurements in tables, and what is wrong with each, if anything."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if column.count or column.gain_of or column.difference:
                continue
            place: Place = ("tables", number, "columns", title)
            yield (*place, "metric"), _unknown_metric(grid, column.metric)
            metric = METRICS.get(column.metric)
            if metric is None:
                continue
            split, name = column.split, column.metric
            if metric.is_score:
                if split is None and not (column.bucket or column.lengths):
                    yield (*place, "split"), f"missing; say which text {name} is of: valid or test"
                splits = ("valid", "test") if split == "each set" else filter(None, [split])
                for each in splits:
                    yield (*place, "split"), _lacks(grid, each, each)
                continue
            if split in ("valid", "test", "each set"):
                yield (*place, "split"), f"{name} is not measured on translations; leave split out"
            if metric.bucket and not (column.bucket or column.layers):
                yield (*place, "bucket"), f"missing; {name} has one, such as {metric.bucket!r}"
            yield place, _lacks(grid, name, metric=metric)


def _of_claims(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str]]:
    for number, claim in enumerate(spec.claims):
        place: Place = ("claims", number)
        for scale in claim.scales:
            if scale not in grid.scales:
                hint, known = nearest(scale, grid.scales), ", ".join(grid.scales)
                problem = f"the grid has no scale {scale!r}{hint} (it has {known})"
                yield (*place, "scales"), problem
        name, metric = claim.metric, METRICS.get(claim.metric)
        if metric:
            split = claim.split if metric.is_score else ""
            yield place, _lacks(grid, f"{name} of {claim.split}", split, metric)
        if spec.analyses:  # which name values as they like
            continue
        if claim.rule != "threshold" and name != "BLEU":
            remedy = "leave metric out, or choose rule: threshold"
            yield (*place, "metric"), f"{claim.rule} compares BLEU alone; {remedy}"
        else:
            yield (*place, "metric"), _unknown_metric(grid, name)


def _unknown_metric(grid: GridConfig, name: str) -> str:
    if _has_own_steps(grid) or name in METRICS or name in FACTS:
        return ""
    known = [*METRICS, *FACTS]
    return f"unknown {name!r}{nearest(name, known)} (known: {', '.join(known)})"


def _has_own_steps(grid: GridConfig) -> bool:
    """Return whether some step is a function of one's own, which names measurements as it likes."""
    return any(":" in step for step in grid.steps)


def _lacks(grid: GridConfig, what: str, split: str = "", metric: Metric | None = None) -> str:
    """Return which step is missing of those that score a split, or that measure a metric; empty if
    none is."""
    steps: Sequence[str] = {"valid": ("score-valid",), "test": ("score-test",)}.get(split, ())
    if split and not steps:
        steps = ("swapped-order",)
    elif metric and not split and not _has_own_steps(grid):
        steps = metric.steps
    if not steps or set(steps) & set(grid.steps):
        return ""
    return (
        f"{what} needs the step {' or '.join(steps)}, which is not among the grid's steps"
        f" ({', '.join(grid.steps)}); add it there"
    )


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
