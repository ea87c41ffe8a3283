"""The looks that all figures share: sizes, fonts, and a colour, marker and dash for each system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import matplotlib as mpl

from shapeshift.positions import KINDS, PRESETS

TEXT_WIDTH_IN = 6.3
"""Width of the text block of an ACL page, in inches."""

# Okabe and Ito (2008): distinct under every common colour blindness. Their yellow is left out: it
# is too pale for a line on white. Shade and marker differ as well, for print in black and white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")

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
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0.7,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default, Type 3
    "svg.hashsalt": "shapeshift",  # the same figure gives the same bytes
}


Look = dict[str, str]
"""How one system looks in every panel of a figure: matplotlib's options of a line."""


def look(number: int, variant: int = 0) -> Look:
    """Return the look of the system with this number, counted from 0; 28 of them differ."""
    size = len(_COLOURS)
    return {
        "color": _COLOURS[number % size],
        "marker": _MARKERS[(number + variant) % size],
        "linestyle": _DASHES[(number // size + variant) % len(_DASHES)],
    }


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return name → look. Each preset and kind has its own in every figure, the SHAPE paper's three
    the first; `shape-10` and the like look like variants of the preset; the others take the
    remaining looks in order."""
    known = dict.fromkeys(("ape", "rpe", "shape", *PRESETS, *KINDS))
    numbers = {name: number for number, name in enumerate(known)}
    variants: dict[str, int] = {}
    styles: dict[str, Look | None] = {}
    for name in dict.fromkeys(names):
        own = [each for each in known if f"{name.lower()}-".startswith(f"{each}-")]
        preset = max(own, key=len, default=None)
        if preset is None:
            styles[name] = None
            continue
        variants[preset] = variants.get(preset, -1) + 1
        styles[name] = look(numbers[preset], variants[preset])
    free = (number for number in count() if look(number) not in styles.values())
    return {name: each or look(next(free)) for name, each in styles.items()}


@contextmanager
def styled() -> Iterator[None]:
    """Draw or save under the settings that all figures share; they are undone afterwards."""
    with mpl.rc_context(_SETTINGS):
        yield
