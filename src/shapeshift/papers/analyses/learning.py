"""How shift invariance is learned: similarity of states, the cost of a swapped order (Kiyono et al.
2021, Figure 6 and Table 1) and BLEU against updates, for APE and for SHAPE with several K."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from shapeshift.lab.analysis.learning import SHIFTS
from shapeshift.lab.figures import Line, Panel, bars_note, draw_lines
from shapeshift.lab.results import Row
from shapeshift.papers.document import Content, DocumentTable, number, words
from shapeshift.papers.study import Study

_BLEU, _ORIGINAL, _SWAPPED, _DROP = (
    "validation BLEU",
    "BLEU, original order",
    "swapped order",
    "drop",
)
_SIMILARITY = {f"similarity to {most}": f"similarity, offsets to {most}" for most in SHIFTS}
_PANELS = {_BLEU: _BLEU, _DROP: "BLEU lost by swapped order", **_SIMILARITY}
"""Column → title of its panel."""

Points = Mapping[tuple[str, int], Mapping[str, Mapping[int, float]]]
"""Position and update → column → seed → value."""


def checkpoints(study: Study) -> Content:
    """Make a table of what the measure `learning` found at the checkpoints of each position, and a
    figure with a panel for each column."""
    points = _points(study)
    columns = (_BLEU, _ORIGINAL, _SWAPPED, _DROP, *_SIMILARITY)
    systems = {name: [at for at in points if at[0] == name] for name, _ in points}
    panels = [
        Panel(
            [
                Line(
                    name,
                    [update for _, update in own],
                    [[*points[at].get(column, {}).values()] for at in own],
                )
                for name, own in systems.items()
            ],
            title,
            min_span=0.05 if column in _SIMILARITY else 1.0,
        )
        for column, title in _PANELS.items()
    ]
    lines = [line for panel in panels for line in panel.lines]
    rows = []
    for (position, update), found in points.items():
        means = {column: fmean(seeds.values()) for column, seeds in found.items() if seeds}
        fields = (number(means.get(x), ".3f" if x in _SIMILARITY else ".2f") for x in columns)
        rows.append((*words(position), number(update, ","), *fields))
    table = DocumentTable(
        name="learning",
        title="Single checkpoints in the course of training, Interpolate",
        header=("position", "updates", *columns),
        rows=tuple(rows),
        notes=(
            "BLEU in original and swapped order: of the first sentence of joined training pairs, in"
            " its place and moved to the end",
            "similarity to K: mean cosine of the encoder's states over its layers, under each two"
            " of the offsets 0, K/5, K/2 and K",
            "mean over seeds",
        ),
        figure="Learning to be shift invariant, Interpolate" + bars_note(lines) if lines else "",
        drawing=draw_lines(panels, "updates") if lines else None,
    )
    return Content([table])


def _points(study: Study) -> Points:
    """Return what was measured after each update, over the layers of the encoder together."""
    values: dict[tuple[str, int], dict[str, dict[int, list[float]]]] = {}
    for row in study.results:
        if row.step is not None and (column := _column(row)):
            own = values.setdefault((row.axes["position"], row.step), {})
            own.setdefault(column, {}).setdefault(row.seed, []).append(row.value)
    points = {}
    order = study.settings("position")
    for at in sorted(values, key=lambda at: (order.index(at[0]), at[1])):
        means = {
            column: {seed: fmean(layers) for seed, layers in seeds.items()}
            for column, seeds in values[at].items()
        }
        swapped = means.get(_SWAPPED, {})
        means[_DROP] = {
            seed: x - swapped[seed]
            for seed, x in means.get(_ORIGINAL, {}).items()
            if seed in swapped
        }
        points[at] = means
    return points


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return f"similarity to {row.bucket.rpartition(' ')[2]}"
    return None
