"""What all figures share: colours, markers, type sizes, and how a figure becomes files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeshift import disk
from shapeshift.errors import ShapeshiftError

FORMATS = ("png", "svg", "pdf")
TEXT_WIDTH_IN = 6.3
"""Width of the text block of an ACL page, in inches."""

# Okabe and Ito (2008): distinct under every common colour blindness. Their yellow is left out: it
# is too pale for a line on white. Shade and marker differ as well, for print in black and white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")
_OWN = {"ape": 0, "rpe": 1, "shape": 2}

_SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 3,  # long enough to show the dashes
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 5,
    "lines.markeredgewidth": 0.7,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default, Type 3
    "svg.hashsalt": "shapeshift",  # the same figure gives the same bytes
}


@dataclass(frozen=True)
class Look:
    """How one system looks in every panel of a figure."""

    colour: str
    marker: str
    dash: str

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot` and `Axes.errorbar`."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dash,
            "markeredgecolor": "white",
        }


def look(number: int) -> Look:
    """Return the look of the system with this number, counted from 0; 28 of them differ."""
    size = len(_COLOURS)
    return Look(
        _COLOURS[number % size],
        _MARKERS[number % size],
        _DASHES[number // size % len(_DASHES)],
    )


def looks(names: Sequence[str]) -> list[Look]:
    """Return the looks of the systems of a figure. The SHAPE paper's three look the same in every
    figure; the others take the remaining looks in order.

    Args:
        names: of all systems, in the figure's order.
    """
    own = [_OWN.get(name.lower()) for name in names]
    left = (number for number in count() if number not in own)
    return [look(next(left) if number is None else number) for number in own]


def add_legend(figure: Figure, axes: Axes, place: Literal["above", "right"] = "above") -> None:
    """Add a legend that names each system of a panel once, above all panels or right of them."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = list(reversed(unique))
    chosen = [unique[name] for name in names]
    if place == "above":
        # At 8 points an inch holds some 16 characters; a line sample with its gaps takes nine.
        room, longest = 16 * figure.get_figwidth(), max(len(name) for name in names) + 9
        columns = min(len(names), max(1, int(room / longest)))
        figure.legend(chosen, names, loc="outside upper center", ncols=columns)
    else:
        figure.legend(chosen, names, loc="outside right center")


@contextmanager
def styled() -> Iterator[None]:
    """Draw or save under the settings that all figures share; they are undone afterwards."""
    with mpl.rc_context(_SETTINGS):
        yield


def save(figure: Figure, stem: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure once for each format, reproducibly: no dates inside; each file whole or not at
    all.

    Args:
        figure: what `plot` returned.
        stem: path without a suffix; its directory is made if need be.
        formats: any of `FORMATS`.

    Returns:
        The files, in the order of `formats`.

    Raises:
        ShapeshiftError: an unknown format, or a file cannot be written.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ShapeshiftError(
            f"unknown figure format {unknown[0]!r}: expected {', '.join(FORMATS)}"
        )
    stem = Path(stem)
    paths = [stem.with_name(f"{stem.name}.{name}") for name in formats]
    date = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with styled():
        for name, path in zip(formats, paths, strict=True):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=name, metadata=date[name])
            disk.save(path, drawn.getbuffer())
    return paths
