"""Which maximum offset K of SHAPE translates the validation set best.

Kiyono et al. 2021 (SHAPE), section 3.3 and Table 4: K from {10, 20, 30, 40, 100, 500} by validation
BLEU on Extrapolate, one seed; K = 40 won with 23.12, against 22.96 for K = 500.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev

from matplotlib.figure import Figure

from shapeshift.lab.analysis.labels import End, label_ends
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, looks, styled

_HEIGHT_IN = 2.5


@dataclass(frozen=True)
class Runs:
    """BLEU of one system, a value for each run (seed)."""

    name: str
    bleu: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return fmean(self.bleu)

    @property
    def spread(self) -> float:
        """The sample standard deviation over runs; 0 for a single one."""
        return stdev(self.bleu) if len(self.bleu) > 1 else 0.0


@dataclass(frozen=True)
class KSearch:
    """The data of the table and the figure.

    Attributes:
        max_offsets: K, ascending.
        runs: SHAPE with each K.
        others: systems to compare with, such as APE and RPE.
        signature: of BLEU.
    """

    max_offsets: tuple[int, ...]
    runs: tuple[Runs, ...]
    others: tuple[Runs, ...]
    signature: str

    @property
    def best(self) -> int:
        """The K with the highest mean; the smallest of equals."""
        means = [runs.mean for runs in self.runs]
        return self.max_offsets[means.index(max(means))]


def plot(data: KSearch) -> Figure:
    """Draw BLEU over K, the best one filled and named, other systems as levels.

    K stands on a logarithmic axis. Bars are one standard deviation over runs. Save the figure with
    `style.save`.
    """
    with styled():
        figure = Figure(figsize=(0.62 * TEXT_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        style, *others = looks(["SHAPE", *(runs.name for runs in data.others)])
        means = [runs.mean for runs in data.runs]
        axes.set_xscale("log")
        if any(len(runs.bleu) > 1 for runs in data.runs):
            axes.errorbar(
                data.max_offsets,
                means,
                [runs.spread for runs in data.runs],
                fmt="none",
                ecolor=style.colour,
                elinewidth=0.8,
                capsize=2,
            )
        axes.plot(
            data.max_offsets,
            means,
            color=style.colour,
            marker=style.marker,
            markerfacecolor="white",
            markeredgecolor=style.colour,
            label="SHAPE",
        )
        best = data.best
        winner = data.runs[data.max_offsets.index(best)]
        axes.plot([best], [winner.mean], color=style.colour, marker=style.marker, label="best")
        # Centred it would cross the axis on the left, or the names on the right.
        side = {data.max_offsets[0]: "left", data.max_offsets[-1]: "right"}.get(best, "center")
        axes.annotate(
            f"K = {best}: {winner.mean:.2f}",
            (best, winner.mean + winner.spread),
            xytext=(0, 7),
            textcoords="offset points",
            ha=side,
            color=style.colour,
        )
        ends = [End(means[-1], "SHAPE", style.colour)]
        for runs, other in zip(data.others, others, strict=True):
            axes.axhline(runs.mean, color=other.colour, linestyle=(0, (4, 3)), linewidth=1)
            ends.append(End(runs.mean, runs.name, other.colour))
        axes.set_xticks(data.max_offsets, list(map(str, data.max_offsets)))
        axes.minorticks_off()
        axes.margins(y=0.18)
        axes.grid(axis="y", color="#dddddd", linewidth=0.5)
        axes.set_xlabel("maximum offset $K$ (tokens)")
        axes.set_ylabel("validation BLEU")
        label_ends(axes, ends, 0.75 * _HEIGHT_IN)
    return figure
