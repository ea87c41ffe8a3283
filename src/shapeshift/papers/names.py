"""Checks what a study's file names against its grid, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from shapeshift.config_errors import dotted
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Cell, GridConfig, unknown_name
from shapeshift.papers.metrics import FACTS, METRICS
from shapeshift.papers.spec import ALL, ItemSpec

Place = Sequence[str | int]


def check_names(spec: ItemSpec, grid: GridConfig, path: Path) -> None:
    """Check the axes, settings, scales and measurements that an item names against its grid.

    Raises:
        ShapeshiftError: once for all names that the grid does not have, and for all measurements
            that none of its steps makes.
    """
    problems = [*_measurements(spec, grid)]
    for place, named in _named(spec):
        for axis, given in named.items():
            settings = (given,) if isinstance(given, str) else given
            problems.append((place, unknown_name(grid.axes, axis, settings)))
    _raise(problems, path)


def check_measurements(spec: ItemSpec, grid: GridConfig, path: Path) -> None:
    """Raise a `ShapeshiftError` for measurements that an item asks for and no step makes."""
    _raise(_measurements(spec, grid), path)


def _raise(problems: Iterable[tuple[Place, str]], path: Path) -> None:
    lines = [f"{dotted(place)}: {problem}" for place, problem in problems if problem]
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
        if claim.rule != "threshold" and name != "BLEU":
            remedy = "leave metric out, or choose rule: threshold"
            yield place, f"metric: {claim.rule} compares BLEU alone; {remedy}"
        elif name in METRICS or not spec.analyses:  # which name their values as they like
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
        is_known = has_own_steps or name in FACTS
        hint = f"{nearest(name, known)} (known: {', '.join(known)})"
        return "" if is_known else f"metric: unknown {name!r}{hint}"
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
