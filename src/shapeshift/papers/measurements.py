"""Checks that a grid measures what a study shows, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shapeshift.config_errors import dotted
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Cell, GridConfig
from shapeshift.papers.metrics import FACTS, METRICS
from shapeshift.papers.spec import ItemSpec

Place = Sequence[str | int]


def check_measurements(spec: ItemSpec, grid: GridConfig, path: Path) -> None:
    """Raise a `ShapeshiftError` for measurements that an item asks for and no step makes."""
    lines = [f"{dotted(place)}: {x}" for place, x in _measurements(spec, grid) if x]
    if lines:
        raise ShapeshiftError("; ".join(lines), path=path)


def _measurements(spec: ItemSpec, grid: GridConfig) -> Iterator[tuple[Place, str]]:
    """Yield the place of each measurement that is asked for, and what is wrong with it, if
    anything."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if column.count or column.gain_of or column.difference:
                continue
            is_part = bool(column.bucket or column.lengths or column.layers)
            for split in ("valid", "test") if column.split == "each set" else (column.split,):
                problem = _problem(grid, column.metric, split, is_part=is_part)
                yield ("tables", number, "columns", title), problem
    for number, figure in enumerate(spec.by_length):
        for split in figure.splits:
            yield ("by_length", number), _problem(grid, "BLEU", split)
    for number, claim in enumerate(spec.claims):
        place: Place = ("claims", number)
        for scale in claim.scales:
            if scale not in grid.scales:
                hint, known = nearest(scale, grid.scales), ", ".join(grid.scales)
                yield place, f"scales: the grid has no scale {scale!r}{hint} (it has {known})"
        name = claim.metric
        if name in METRICS or not spec.analyses:  # which name their values as they like
            is_score = name in METRICS and METRICS[name].is_score
            yield place, _problem(grid, name, claim.split if is_score else None, is_part=True)


def _problem(grid: GridConfig, name: str, split: str | None, *, is_part: bool = False) -> str:
    """Return why a measurement of a split, or of the run, cannot be had; empty if it can.

    Args:
        is_part: whether a part of the measurement is asked for.
    """
    metric = METRICS.get(name)
    has_own_steps = any(":" in step for step in grid.steps)  # which measure what they like
    if metric is None:
        known = [*METRICS, *FACTS]
        if has_own_steps or name in FACTS:
            return ""
        return f"metric: unknown {name!r}{nearest(name, known)} (known: {', '.join(known)})"
    steps = () if has_own_steps else metric.steps
    if metric.is_score:
        if split is None:
            return "" if is_part else f"split: missing; say which text {name} is of: valid or test"
        steps = ("swapped-order" if split == "original-order" else f"score-{split}",)
    elif split is not None:
        return f"split: {name} is not measured on translations; leave split out"
    elif metric.bucket and not is_part:
        return f"bucket: missing; {name} has one, such as {metric.bucket!r}"
    if not steps or set(steps) & set(grid.steps):
        return ""
    return (
        f"{name} needs the step {' or '.join(steps)}, which is not among the grid's steps"
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
