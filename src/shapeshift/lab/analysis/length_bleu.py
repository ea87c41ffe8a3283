"""BLEU by source length for several systems, with the lengths that training never showed shaded.

Kiyono et al. 2021 (SHAPE), Figure 7 (absolute) and Figure 3 (gain over APE). Differs from the
paper: each bucket names its number of segments, and buckets with few are drawn hollow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.evaluation.lengths import FEW_SEGMENTS, LengthBucket
from shapeshift.evaluation.scores import Scores, length_columns
from shapeshift.evaluation.tables import FEW_MARK, NO_VALUE, Table
from shapeshift.lab.analysis.document import Measured
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, Look, add_legend, looks, styled

UNSEEN_MARK = "‡"
_HEIGHT_IN = 2.6
_SHADE = "#ececec"
_NUDGE = 0.06  # of a bucket, between one system and the next


@dataclass(frozen=True)
class Curve:
    """One system's BLEU over the buckets; NaN for an empty bucket.

    Attributes:
        name: the system.
        mean: over its runs, one value a bucket.
        spread: sample standard deviation over its runs; 0 for a single run, NaN for an empty
            bucket.
        num_runs: how many runs (seeds) there are.
    """

    name: str
    mean: tuple[Measured, ...]
    spread: tuple[Measured, ...]
    num_runs: int


@dataclass(frozen=True)
class LengthBleu:
    """The data of the figure.

    Attributes:
        buckets: of the first system; bounds and counts are the same for all.
        curves: one for each system.
        baseline: the system that gains are measured from, or `None`.
        trained: half-open range `[low, high)` of source lengths in training; `high = None` has no
            end; `None` where it is not known or not of interest.
    """

    buckets: tuple[LengthBucket, ...]
    curves: tuple[Curve, ...]
    baseline: str | None
    trained: tuple[int, int | None] | None

    def gains(self) -> tuple[Curve, ...]:
        """Return mean BLEU minus the baseline's for every other system.

        The spread stays the system's own: runs of two systems do not come in pairs.
        """
        [base] = [curve for curve in self.curves if curve.name == self.baseline]
        return tuple(
            Curve(
                curve.name,
                tuple(ours - theirs for ours, theirs in zip(curve.mean, base.mean, strict=True)),
                curve.spread,
                curve.num_runs,
            )
            for curve in self.curves
            if curve is not base
        )


def compute(
    systems: Mapping[str, Sequence[Scores]],
    *,
    baseline: str | None = None,
    trained: tuple[int, int | None] | None = None,
) -> LengthBleu:
    """Gather BLEU by length.

    Args:
        systems: name → its scores with `by_length`, one for each run (seed).
        baseline: name of the system to measure gains from.
        trained: half-open range of the source lengths seen in training, in the unit of the
            buckets. `Extrapolate(max_length=50)` is `(1, 51)`.

    Raises:
        ShapeshiftError: no systems or runs, no BLEU by length, scores that cannot be compared, or
            an unknown baseline.
    """
    if baseline is not None and baseline not in systems:
        raise ShapeshiftError(
            f"unknown baseline {baseline!r}: expected one of {', '.join(systems)}"
            + nearest(baseline, systems)
        )
    empty = [name for name, runs in systems.items() if not runs]
    if empty:
        raise ShapeshiftError(f"{empty[0]!r} has no runs: expected at least one")
    columns = length_columns(
        {
            name if len(runs) == 1 else f"{name} (run {number})": scores
            for name, runs in systems.items()
            for number, scores in enumerate(runs, start=1)
        }
    )
    return LengthBleu(
        buckets=next(iter(columns.values())),
        curves=tuple(_curve(name, runs) for name, runs in systems.items()),
        baseline=baseline,
        trained=trained,
    )


def plot(data: LengthBleu) -> Figure:
    """Draw absolute BLEU and, given a baseline, the gain over it in a second panel.

    Bars through the points are one standard deviation over runs. Save it with `style.save`.
    """
    return _plot(data, TEXT_WIDTH_IN, [False, True]) if data.baseline else plot_panel(data)


def plot_panel(data: LengthBleu, *, gains: bool = False) -> Figure:
    """Draw one panel alone: absolute BLEU, or the gain over the baseline."""
    return _plot(data, 0.8 * TEXT_WIDTH_IN, [gains])


def _plot(data: LengthBleu, width_in: float, gains: Sequence[bool]) -> Figure:
    """Draw a panel for each item of `gains`, which selects gains or absolute BLEU."""
    with styled():
        figure = Figure(figsize=(width_in, _HEIGHT_IN), layout="constrained")
        panels = figure.subplots(1, len(gains), squeeze=False)[0]
        for axes, is_gain in zip(panels, gains, strict=True):
            if is_gain:
                axes.axhline(0, color="#555555", linewidth=0.8)
                axes.set_ylabel(f"BLEU gain over {data.baseline}")
            else:
                axes.set_ylabel("BLEU" + _averaged(data))
            draw(axes, data, data.gains() if is_gain else data.curves)
        figure.supxlabel(axis_title(data), fontsize=8)
        add_legend(figure, panels[0])
    return figure


def tabulate(data: LengthBleu) -> Table:
    """Lay out the same as a table: a row for each bucket, a column for each system; the standard
    deviation over runs follows where there are several."""
    rows = []
    for row, bucket in enumerate(data.buckets):
        marks = UNSEEN_MARK if data.trained and _is_unseen(bucket, data.trained) else ""
        cells = [_cell(curve, row, bucket) for curve in data.curves]
        rows.append((bucket.label + marks, str(bucket.num_segments), *cells))
    notes = []
    if data.trained:
        notes.append(f"{UNSEEN_MARK} longer or shorter than anything in training")
    if any(bucket.is_small for bucket in data.buckets):
        notes.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    if any(curve.num_runs > 1 for curve in data.curves):
        notes.append("mean ± standard deviation" + _averaged(data))
    return Table(("source length", "segments", *(c.name for c in data.curves)), rows, notes)


def axis_title(data: LengthBleu) -> str:
    """Return the title of the x axis, which says what the marks in the panels mean."""
    marks = ["below: segments"]
    if data.trained:
        marks.append("shaded: unseen in training")
    if any(bucket.is_small for bucket in data.buckets):
        marks.append(f"hollow: fewer than {FEW_SEGMENTS}")
    return f"source length ({'; '.join(marks)})"


def draw(axes: Axes, data: LengthBleu, curves: Sequence[Curve]) -> None:
    """Draw curves into one panel, with ticks that name lengths and segments; no labels.

    Args:
        axes: an empty panel.
        data: buckets, and the order of systems, which their looks follow.
        curves: `data.curves` or `data.gains()`.
    """
    order = [curve.name for curve in data.curves]
    styles = dict(zip(order, looks(order), strict=True))
    places = range(len(data.buckets))
    axes.set_xlim(-0.5, len(data.buckets) - 0.5)
    axes.set_xticks(places, [f"{bucket.label}\n{bucket.num_segments:,}" for bucket in data.buckets])
    axes.grid(axis="y")
    for low, high in _unseen(data):
        axes.axvspan(low, high, color=_SHADE, linewidth=0, zorder=0)
    for curve in curves:
        # Side by side, so that systems with equal scores do not hide each other.
        nudge = _NUDGE * (order.index(curve.name) - (len(order) - 1) / 2)
        xs = [place + nudge for place in places]
        _draw_curve(axes, xs, curve, styles[curve.name], data.buckets)


def _is_unseen(bucket: LengthBucket, trained: tuple[int, int | None]) -> bool:
    low, high = trained
    return (high is not None and bucket.low >= high) or (
        bucket.high is not None and bucket.high <= low
    )


def _cell(curve: Curve, row: int, bucket: LengthBucket) -> str:
    if math.isnan(curve.mean[row]):
        return NO_VALUE
    spread = f" ± {curve.spread[row]:.2f}" if curve.num_runs > 1 else ""
    return f"{curve.mean[row]:.2f}{spread}" + FEW_MARK * bucket.is_small


def _curve(name: str, runs: Sequence[Scores]) -> Curve:
    buckets = zip(*(run.by_length or () for run in runs), strict=True)
    values = [[math.nan if b.bleu is None else b.bleu for b in bucket] for bucket in buckets]
    return Curve(
        name,
        mean=tuple(fmean(bucket) for bucket in values),
        spread=tuple(_spread(bucket) for bucket in values),
        num_runs=len(runs),
    )


def _averaged(data: LengthBleu) -> str:
    counts = [curve.num_runs for curve in data.curves]
    fewest, most = min(counts), max(counts)
    if most == 1:
        return " (one run)"
    return f" (mean of {fewest} runs)" if fewest == most else f" (mean of {fewest}–{most} runs)"


def _spread(values: Sequence[float]) -> float:
    if any(map(math.isnan, values)):
        return math.nan  # which `stdev` of Python 3.11 chokes on
    return stdev(values) if len(values) > 1 else 0.0


def _draw_curve(
    axes: Axes, xs: Sequence[float], curve: Curve, style: Look, buckets: Sequence[LengthBucket]
) -> None:
    if curve.num_runs > 1:
        axes.errorbar(
            xs, curve.mean, curve.spread, fmt="none", ecolor=style.colour, elinewidth=0.8, capsize=2
        )
    axes.plot(xs, curve.mean, **style.line, label=curve.name)
    small = [place for place, bucket in enumerate(buckets) if bucket.is_small]
    axes.plot(
        [xs[place] for place in small],
        [curve.mean[place] for place in small],
        linestyle="none",
        color=style.colour,
        marker=style.marker,
        markerfacecolor="white",
    )


def _unseen(data: LengthBleu) -> list[tuple[float, float]]:
    """Return the spans of the x axis whose lengths training never showed."""
    if data.trained is None:
        return []
    low, high = data.trained
    left, right = -0.5, len(data.buckets) - 0.5
    start = left if low <= 1 else _place(data.buckets, low)  # no sentence has length 0
    end = right if high is None else _place(data.buckets, high)
    return [span for span in ((left, start), (end, right)) if span[0] < span[1]]


def _place(buckets: Sequence[LengthBucket], length: int) -> float:
    """Return where a length stands on the x axis, on which bucket i spans i ± 0.5."""
    for place, bucket in enumerate(buckets):
        if bucket.high is not None and length < bucket.high:
            return place - 0.5 + (length - bucket.low) / (bucket.high - bucket.low)
    # The last bucket has no end: let its axis run as fast as that of the bucket before it.
    low = buckets[-1].low
    width = low - buckets[-2].low if len(buckets) > 1 else 1
    return len(buckets) - 1.5 + min(1.0, (length - low) / width)
