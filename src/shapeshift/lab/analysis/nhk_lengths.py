"""Training on slices of the lengths: BLEU by source length, and what each slice holds.

Miyazaki et al. 2024 (NHK), section 3.4: Figure 3 (trained on everything, on sources of under 20
tokens, of 40 to 59, of 80 and more) and Table 4 (sentences and source tokens of each slice, BLEU on
the test sentences of the same lengths).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from shapeshift.data.store import TokenStore
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.scores import Scores
from shapeshift.lab.analysis import length_bleu, lengths
from shapeshift.lab.analysis.length_bleu import LengthBleu
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, add_legend, styled

_PANEL_HEIGHT_IN = 2.0


@dataclass(frozen=True)
class Trained:
    """What was trained on one slice: an argument of `compute`.

    Attributes:
        lengths: half-open range of source lengths; `None` for all.
        store: the training pairs.
        systems: name → its test scores with `by_length`, one for each run (seed).
    """

    lengths: tuple[int, int | None] | None
    store: TokenStore
    systems: Mapping[str, Sequence[Scores]]


@dataclass(frozen=True)
class Panel:
    """One slice.

    Attributes:
        name: the slice.
        num_pairs, num_source_tokens: of its training data.
        bleu: of all systems by source length, with the slice as its `trained`.
    """

    name: str
    num_pairs: int
    num_source_tokens: int
    bleu: LengthBleu


@dataclass(frozen=True)
class SliceBleu:
    """The data of the figure and the table."""

    panels: tuple[Panel, ...]


def compute(slices: Mapping[str, Trained]) -> SliceBleu:
    """Gather BLEU by length and the size of the training data of each slice.

    Args:
        slices: name → what was trained on it. All have the same systems.

    Raises:
        ShapeshiftError: no slices, other systems in one than in another, a slice without training
            pairs, or scores that cannot be compared.
    """
    if not slices:
        raise ShapeshiftError("no slices to compare: expected one at least")
    sizes = lengths.compute({name: trained.store for name, trained in slices.items()})
    first = list(next(iter(slices.values())).systems)
    panels = []
    for (name, trained), size in zip(slices.items(), sizes.datasets, strict=True):
        if list(trained.systems) != first:
            raise ShapeshiftError(
                f"slice {name!r} has the systems {', '.join(trained.systems)}; expected"
                f" {', '.join(first)}, in this order, as in the first slice"
            )
        bleu = length_bleu.compute(trained.systems, trained=trained.lengths)
        panels.append(Panel(name, size.num_pairs, size.source.num_tokens, bleu))
    return SliceBleu(tuple(panels))


def plot(data: SliceBleu) -> Figure:
    """Draw a panel for each slice, each with its own scale; lengths outside of it are shaded.

    Save it with `style.save`.
    """
    num_columns = min(2, len(data.panels))
    num_rows = -(-len(data.panels) // num_columns)
    with styled():
        width = TEXT_WIDTH_IN if num_columns == 2 else 0.62 * TEXT_WIDTH_IN
        figure = Figure(figsize=(width, _PANEL_HEIGHT_IN * num_rows + 0.4), layout="constrained")
        panels = figure.subplots(num_rows, num_columns, squeeze=False).flat
        for number, axes in enumerate(panels):
            if number >= len(data.panels):
                axes.set_axis_off()
                continue
            panel = data.panels[number]
            length_bleu.draw(axes, panel.bleu, panel.bleu.curves)
            axes.set_title(
                f"({chr(ord('a') + number)}) {panel.name}: {panel.num_pairs:,} pairs", loc="left"
            )
            if number % num_columns == 0:
                axes.set_ylabel("BLEU")
        titles = (length_bleu.axis_title(panel.bleu) for panel in data.panels)
        figure.supxlabel(max(titles, key=len), fontsize=8)  # of a panel that has shades
        add_legend(figure, figure.axes[0])
    return figure
