"""From the tidy table of results to the tables of the papers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.evaluation.tables import NO_VALUE, Table
from shapeshift.experiments.results import Results, Row
from shapeshift.experiments.significance import Summary, summarise

AGGREGATES: dict[str, Callable[[Summary], str]] = {
    "mean": lambda summary: f"{summary.mean:.2f}",
    "median": lambda summary: f"{summary.median:.2f}",
    "stdev": lambda summary: f"{summary.stdev:.2f}",
    "mean ± stdev": lambda summary: _with_spread(summary),
}
"""How the values of several seeds become one cell of a table."""

_WHERE = ("grid", "scale", "measure", "dataset", "bucket", "step")

Labels = tuple[str, ...]


def pivot(
    results: Results,
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    metric: str | Sequence[str],
    aggregate: str = "mean",
    *,
    where: Mapping[str, str] | None = None,
    marks: Mapping[tuple[Labels, Labels], str] | None = None,
) -> Table:
    """Lay out measurements, aggregated over seeds.

    Rows and columns keep the order in which the results have them, which is the grid's. Nothing but
    seeds is aggregated: where the rows of one cell differ in an axis or a dataset as well, that is
    an error.

    Args:
        results: of one grid or several.
        rows, columns: names of axes, or of `grid`, `scale`, `measure`, `metric`, `dataset`,
            `bucket` (a range of lengths), `step` (an update); several make one label together.
        metric: which measurements, one name or several.
        aggregate: a name from `AGGREGATES`.
        where: name → value, of the same names: other measurements are left out. Those with a bucket
            or a step are left out, too, unless these are named somewhere here.
        marks: (labels of the row, labels of the column) → text to stand behind the value.

    Raises:
        ShapeshiftError: a name that is unknown, nothing to show, or values that do not belong
            together.
    """
    if aggregate not in AGGREGATES:
        raise ShapeshiftError(
            f"unknown aggregate {aggregate!r}{nearest(aggregate, AGGREGATES)}"
            f" (known: {', '.join(AGGREGATES)})"
        )
    down, across = _names(rows), _names(columns)
    where = where or {}
    chosen = _choose(results, _names(metric), where, {*down, *across})
    groups: dict[tuple[Labels, Labels], list[Row]] = {}
    for row in chosen:
        place = tuple(_value(row, n) for n in down), tuple(_value(row, n) for n in across)
        groups.setdefault(place, []).append(row)
    for group in groups.values():
        _check_alike(group, results.axes())
    row_labels = list(dict.fromkeys(labels for labels, _ in groups))
    column_labels = list(dict.fromkeys(labels for _, labels in groups))
    show = AGGREGATES[aggregate]
    text = {
        place: show(summarise([row.value for row in group])) + (marks or {}).get(place, "")
        for place, group in groups.items()
    }
    body = [
        ("/".join(row), *(text.get((row, column), NO_VALUE) for column in column_labels))
        for row in row_labels
    ]
    header = ("/".join(down), *("/".join(labels) for labels in column_labels))
    return Table(header, body, _notes(chosen, groups.values(), aggregate))


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _value(row: Row, name: str) -> str:
    value = row.axes.get(name) if name in row.axes else getattr(row, name, None)
    return NO_VALUE if value is None else str(value)


def _choose(
    results: Results, metrics: Sequence[str], where: Mapping[str, str], named: set[str]
) -> list[Row]:
    known = {*results.axes(), *_WHERE, "metric", "seed"}
    for name in (*named, *where):
        if name not in known:
            raise ShapeshiftError(
                f"unknown column {name!r}{nearest(name, known)} (known: {', '.join(sorted(known))})"
            )
    whole = [name for name in ("bucket", "step") if name not in named and name not in where]
    chosen = [
        row
        for row in results.rows
        if row.metric in metrics
        and all(_value(row, name) == value for name, value in where.items())
        and all(getattr(row, name) is None for name in whole)
    ]
    if not chosen:
        conditions = ", ".join(f"{name}={value}" for name, value in where.items())
        there = sorted({row.metric for row in results.rows})
        raise ShapeshiftError(
            f"no {' or '.join(metrics)}{' with ' * bool(conditions)}{conditions} in the results;"
            f" there are {', '.join(there) or 'none at all'}"
        )
    return chosen


def _check_alike(group: Sequence[Row], axes: Sequence[str]) -> None:
    for name in (*axes, *_WHERE, "metric", "signature"):
        values = list(dict.fromkeys(_value(row, name) for row in group))
        if len(values) > 1:
            raise ShapeshiftError(
                f"one cell of the table would mix {name} {' and '.join(values[:3])}; name {name!r}"
                " in rows or columns, or choose one with where"
            )
    seeds = [row.seed for row in group]
    if len(set(seeds)) < len(seeds):
        raise ShapeshiftError(
            f"one cell of the table has seed {max(seeds, key=seeds.count)} twice; collect each grid"
            " once"
        )


def _notes(chosen: Sequence[Row], groups: Collection[Sequence[Row]], aggregate: str) -> list[str]:
    counts = {len(group) for group in groups}
    notes = []
    if max(counts) > 1:
        fewest, most = min(counts), max(counts)
        seeds = str(most) if fewest == most else f"{fewest} to {most}"
        notes.append(f"{aggregate} over {seeds} seeds")
    signatures = dict.fromkeys((row.metric, row.signature) for row in chosen if row.signature)
    return notes + [f"{metric}: {signature}" for metric, signature in signatures]


def _with_spread(summary: Summary) -> str:
    spread = f" ± {summary.stdev:.2f}" if summary.num_values > 1 else ""
    return f"{summary.mean:.2f}{spread}"
