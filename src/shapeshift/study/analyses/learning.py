"""How shift invariance is learned: similarity of states, the cost of a swapped order (Kiyono et al.
2021, Figure 6 and Table 1) and BLEU against updates, for APE and for SHAPE with several K."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeshift.run.analysis.learning import SHIFTS
from shapeshift.study.document import Content, DocumentTable, number, words
from shapeshift.study.figures import Line, Panel, bars_note, draw_lines
from shapeshift.study.measured import Measured
from shapeshift.study.results import Row

if TYPE_CHECKING:
    import pandas as pd

_BLEU, _ORIGINAL = "validation BLEU", "BLEU, original order"
_SWAPPED, _DROP = "swapped order", "drop"
_SIMILARITY = {f"similarity to {most}": f"similarity, offsets to {most}" for most in SHIFTS}
_PANELS = {_BLEU: _BLEU, _DROP: "BLEU lost by swapped order", **_SIMILARITY}
"""Column → title of its panel."""

_NOTES = (
    "BLEU in original and swapped order: of the first sentence of joined training pairs, in its"
    " place and moved to the end",
    "similarity to K: mean cosine of the encoder's states over its layers, under each two of the"
    " offsets 0, K/5, K/2 and K",
    "mean over seeds",
)


def checkpoints(measured: Measured) -> Content:
    """Make a table of what the measure `learning` found at the checkpoints of each position, and a
    figure with a panel for each column."""
    columns = (_BLEU, _ORIGINAL, _SWAPPED, _DROP, *_SIMILARITY)
    rows, lines = [], dict[str, list[Line]]()
    for position in measured.settings("position"):
        points = _points(measured, position)
        means = points.groupby("update").mean()
        for update, found in means.iterrows():
            fields = (number(found[x], ".3f" if x in _SIMILARITY else ".2f") for x in columns)
            rows.append((*words(position), number(update, ","), *fields))
        for column in _PANELS if len(means) else ():
            values = [points[column][update].tolist() for update in means.index]
            lines.setdefault(column, []).append(Line(position, [*means.index], values))
    panels = [
        Panel(own, _PANELS[column], min_span=0.05 if column in _SIMILARITY else 1.0)
        for column, own in lines.items()
    ]
    about = "Learning to be shift invariant, Interpolate"
    table = DocumentTable(
        name="learning",
        title="Single checkpoints in the course of training, Interpolate",
        header=("position", "updates", *columns),
        rows=tuple(rows),
        notes=_NOTES,
        figure=about + bars_note(x for own in lines.values() for x in own) if rows else "",
        drawing=draw_lines(panels, "updates") if rows else None,
    )
    return Content([table])


def _points(measured: Measured, position: str) -> pd.DataFrame:
    """Return a row for each update and seed, and a column for each result, averaged over the
    encoder's layers."""
    import pandas as pd

    found = [
        (row.update, row.seed, column, row.value)
        for row in measured.results
        if row.update is not None and row.axes["position"] == position and (column := _column(row))
    ]
    frame = pd.DataFrame(found, columns=["update", "seed", "column", "value"])
    points = frame.pivot_table("value", ["update", "seed"], "column")
    points[_DROP] = points[_ORIGINAL] - points[_SWAPPED] if found else 0.0
    return points


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return f"similarity to {row.bucket.rpartition(' ')[2]}"
    return None
