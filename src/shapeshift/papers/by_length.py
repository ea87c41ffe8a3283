"""BLEU by source length as a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from shapeshift.config import Config
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.evaluation.lengths import FEW_SEGMENTS, LengthBucket
from shapeshift.evaluation.tables import FEW_MARK
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.length_bleu import Bounds, LengthBleu
from shapeshift.lab.figures import draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import MARK
from shapeshift.papers.document import (
    DocumentFigure,
    DocumentTable,
    Entry,
    missing,
    number,
    words,
)
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import ByLengthSpec, Lengths
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import mark_note, significant

UNSEEN_MARK = "‡"


@dataclass(frozen=True)
class _Panel:
    """A panel of the figure, and a group of rows of the table.

    Attributes:
        name: the lengths in training; empty if there is but one panel.
        runs: system → its finished cells, one for each seed.
        data: BLEU.
        marked: system → the numbers of the buckets in which it differs from the first.
    """

    name: str
    runs: Mapping[str, Sequence[Cell]]
    data: LengthBleu
    marked: Mapping[str, set[int]]


def trained_lengths(config: Config) -> Bounds | None:
    """Return the source lengths in training, where the dataset limits them."""
    match config.data.dataset:
        case Extrapolate(max_length=longest):
            return 1, longest + 1
        case LengthSlice(min_length=shortest, max_length=end):
            return shortest, end
    return None


def length_bounds(config: Config, lengths: Lengths) -> Bounds | None:
    """Return the source lengths that training has shown, or has not; `None` where there are none,
    or they are on both sides of those in training, which one test cannot take together."""
    trained = trained_lengths(config)
    if lengths == "inside" or trained is None:
        return trained
    low, high = trained
    if low <= 1:
        return None if high is None else (high, None)
    return (0, low) if high is None else None


def bounds_label(bounds: Bounds | None) -> str:
    """Return what people call lengths, and measurements the bucket of these: `0–9`, `≥ 50`."""
    if bounds is None:
        return "all"
    return LengthBucket(low=bounds[0], high=bounds[1], num_segments=0, score=None).label


def add_lengths(
    content: Content, study: Study, spec: ByLengthSpec, name: str, default_grid: str
) -> None:
    """Add BLEU by source length; nothing where no run is finished.

    Args:
        content: gets the table and the figure.
        study: with the runs.
        spec: what is shown.
        name: of the table and the figure.
        default_grid: whose runs are shown, unless the spec names another.
    """
    grid = spec.grid or default_grid
    panels = _panels(study, spec, grid)
    if not panels:
        return
    systems = list(dict.fromkeys(system for panel in panels for system in panel.data.systems))
    heads = ["trained on", "source length"] if spec.panels else ["source length"]
    content.tables.append(
        DocumentTable(
            name=name,
            title=spec.title,
            header=(*heads, "segments", *systems),
            rows=tuple(
                row
                for panel in panels
                for row in _rows(panel, systems, sign="+" if spec.gain_over else "")
            ),
            notes=tuple(_notes(panels, spec.notes)),
        )
    )
    shaded = any(panel.data.trained for panel in panels)
    note = "; lengths that training has not shown are shaded" if shaded else ""
    about = DocumentFigure(
        name=name,
        title=spec.title + note,
        table=name,
        alt=f"{spec.title}: {'; '.join(map(_spoken, panels))}{note}.",
    )
    y_title = f"BLEU gain over {spec.gain_over}" if spec.gain_over else "BLEU"
    letters = "abcdefgh"
    drawn = [
        panel.data.panel(
            y_title,
            f"({letter}) trained on {panel.name} lengths" if panel.name else "",
            zero=bool(spec.gain_over),
        )
        for letter, panel in zip(letters, panels, strict=False)
    ]
    x_title = max((panel.data.x_title for panel in panels), key=len)
    content.figures.append(Figure(about, draw_lines(drawn, x_title)))


def _panels(study: Study, spec: ByLengthSpec, grid: str) -> list[_Panel]:
    """Return the panels with the systems that are finished for each one that has any."""
    settings = study.settings(grid, spec.panels) if spec.panels else [""]
    panels = []
    for setting in settings:
        axes = spec.only | ({spec.panels: setting} if setting else {})
        runs = {
            system: cells
            for system in study.settings(grid, spec.systems)
            if (cells := study.finished(grid, axes | {spec.systems: system}))
        }
        if runs:
            panels.append((axes, runs))
    shared = set.intersection(*(set(runs) for _, runs in panels)) if panels else set()
    if spec.gain_over and (spec.gain_over not in shared or len(shared) == 1):
        return []
    found = []
    for axes, all_runs in panels if shared else ():
        runs = {system: cells for system, cells in all_runs.items() if system in shared}
        config = next(iter(runs.values()))[0].config
        data = length_bleu.compute(
            {
                system: [study.scores(cell, *spec.splits) for cell in cells]
                for system, cells in runs.items()
            },
            trained=trained_lengths(config),
        )
        marked = _marked(study, data, grid, axes, spec.systems) if spec.tested else {}
        if spec.gain_over:
            data = data.gains(spec.gain_over)
        name = bounds_label(trained_lengths(config)) if spec.panels else ""
        found.append(_Panel(name, runs, data, marked))
    return found


def _rows(panel: _Panel, systems: Sequence[str], sign: str) -> list[tuple[Entry, ...]]:
    data, cells = panel.data, [cell for own in panel.runs.values() for cell in own]
    rows = []
    for place, bucket in enumerate(data.buckets):
        fields = [number(bucket.num_segments, ",", cells)]
        for system in systems:
            mean = data.mean(system)[place]
            if math.isnan(mean):  # no sentence is so long
                fields.append(missing())
                continue
            seeds = data.systems[system][place]
            text = f"{mean:{sign}.2f}" + (f" ± {stdev(seeds):.2f}" if len(seeds) > 1 else "")
            text += FEW_MARK * bucket.is_small + MARK * (place in panel.marked.get(system, ()))
            field = number(mean, cells=panel.runs[system])
            fields.append(field.model_copy(update={"text": text}))
        label = bucket.label + UNSEEN_MARK * data.is_unseen(bucket)
        rows.append((*words(*filter(None, (panel.name, label))), *fields))
    return rows


def _notes(panels: Sequence[_Panel], notes: Sequence[str]) -> list[str]:
    lines = [*notes]
    buckets = [(panel.data, bucket) for panel in panels for bucket in panel.data.buckets]
    if any(data.is_unseen(bucket) for data, bucket in buckets):
        lines.append(f"{UNSEEN_MARK} longer or shorter than anything in training")
    if any(bucket.is_small for _, bucket in buckets):
        lines.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    seeds = [len(each) for panel in panels for own in panel.data.systems.values() for each in own]
    lines.append("mean ± standard deviation over seeds" if max(seeds) > 1 else "one seed")
    if panels[0].marked:
        lines.append(mark_note(next(iter(panels[0].runs)), "lengths of the system"))
    return lines


def _marked(
    study: Study, data: LengthBleu, grid: str, axes: Mapping[str, str], axis: str
) -> dict[str, set[int]]:
    """Return system → the numbers of the buckets in which it differs from the first one."""
    first, *others = data.systems
    return {
        system: significant(
            {
                place: study.compare(
                    grid,
                    {**axes, axis: system},
                    {**axes, axis: first},
                    lengths=(bucket.low, bucket.high),
                )
                for place, bucket in enumerate(data.buckets)
                if bucket.num_segments >= FEW_SEGMENTS
            }
        )
        for system in others
    }


def _spoken(panel: _Panel) -> str:
    """Return where each line begins and ends, for those who cannot see it."""
    parts = []
    for system in panel.data.systems:
        points = [
            (bucket.label, mean)
            for bucket, mean in zip(panel.data.buckets, panel.data.mean(system), strict=True)
            if not math.isnan(mean)
        ]
        if points:
            (first, begin), (last, end) = points[0], points[-1]
            parts.append(f"{system} goes from {begin:.1f} at {first} to {end:.1f} at {last}")
    text = "; ".join(parts)
    return f"trained on {panel.name} lengths: {text}" if panel.name else text
