"""Validation perplexity, or BLEU, against updates and against the time that training took.

Kiyono et al. 2021 (SHAPE), Figure 8 (updates), Figure 9 (wall clock) and Table 6 (training time).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.document import Measured
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, add_legend, looks, styled
from shapeshift.training.log import read_log

Against = Literal["updates", "time"]
Measure = Literal["perplexity", "bleu"]

_HEIGHT_IN = 2.6
_LEGEND_LINE_IN = 0.25
_MEASURES: dict[Measure, str] = {"perplexity": "validation perplexity", "bleu": "validation BLEU"}
_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class RunCurve:
    """The validations of one run, in the order of training.

    Attributes:
        updates: after how many updates.
        elapsed_s: seconds of training, with validation and saving but without the time between a
            stop and a restart; `None` where the log does not have it.
        perplexity: exp(nats a target token).
        bleu: NaN where it was not measured.
    """

    updates: tuple[int, ...]
    elapsed_s: tuple[float, ...] | None
    perplexity: tuple[float, ...]
    bleu: tuple[Measured, ...]


@dataclass(frozen=True)
class SystemCurves:
    """One system's runs, one for each seed."""

    name: str
    runs: tuple[RunCurve, ...]


@dataclass(frozen=True)
class Curves:
    """The data of the figures."""

    systems: tuple[SystemCurves, ...]


def read_run(directory: str | Path) -> RunCurve:
    """Return the validations of one run.

    Raises:
        ShapeshiftError: there are none, or the log is damaged.
    """
    directory = Path(directory)
    lines = [line for line in read_log(directory / "log.jsonl") if "valid_loss" in line]
    if not lines:
        raise ShapeshiftError(
            "no validation is logged there yet; name the folder of a run that has validated",
            path=directory / "log.jsonl",
        )
    updates = tuple(int(line["update"]) for line in lines)
    timed = all("elapsed_s" in line for line in lines)
    return RunCurve(
        updates,
        tuple(float(line["elapsed_s"]) for line in lines) if timed else None,
        tuple(math.exp(line["valid_loss"]) for line in lines),
        tuple(line.get("valid_bleu", math.nan) for line in lines),
    )


def plot(data: Curves, measure: Measure = "perplexity", against: Against = "updates") -> Figure:
    """Draw a line for each run; the runs of a system share their look. Save the figure with
    `style.save`.

    Raises:
        ShapeshiftError: no run has this measure, or one has no times.
    """
    unit, scale = ("updates", 1.0) if against == "updates" else _time_unit(data)
    with styled():
        height = max(_HEIGHT_IN, _LEGEND_LINE_IN * len(data.systems))
        figure = Figure(figsize=(TEXT_WIDTH_IN, height), layout="constrained")
        axes = figure.subplots()
        styles = looks([system.name for system in data.systems])
        for system, style in zip(data.systems, styles, strict=True):
            for run in system.runs:
                xs, ys = _points(run, measure, against, scale)
                if xs:
                    axes.plot(xs, ys, **style.line, markersize=4, label=system.name)
        if not axes.lines:
            raise ShapeshiftError(
                f"no run has {_MEASURES[measure]}; train with training.validate_metrics=bleu"
            )
        axes.grid(axis="y")
        axes.set_xlim(0)
        axes.set_xlabel("updates" if against == "updates" else f"training time ({unit})")
        axes.set_ylabel(_MEASURES[measure])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        if measure == "perplexity":
            _scale_perplexity(axes)
        add_legend(figure, axes, "right")
    return figure


def _points(
    run: RunCurve, measure: Measure, against: Against, scale: float
) -> tuple[list[float], list[float]]:
    """Return where a run's measured points stand."""
    xs: Iterable[float] = run.updates
    if against == "time":
        if run.elapsed_s is None:
            raise ShapeshiftError(
                "a run has no times: the lines of its log.jsonl have no elapsed_s; draw it against"
                " updates"
            )
        xs = (time / scale for time in run.elapsed_s)
    ys = run.perplexity if measure == "perplexity" else run.bleu
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if not math.isnan(y)]
    return [x for x, _ in points], [y for _, y in points]


def _time_unit(data: Curves) -> tuple[str, float]:
    longest = max(
        (run.elapsed_s[-1] for system in data.systems for run in system.runs if run.elapsed_s),
        default=0.0,
    )
    return next((unit for unit in _UNITS if longest >= 2 * unit[1]), _UNITS[-1])


def _scale_perplexity(axes: Axes) -> None:
    # It falls from thousands to a few: a linear axis would show the first updates and nothing else.
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low > 4 else tuple(range(1, 10))
    axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
