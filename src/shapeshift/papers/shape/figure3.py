"""Figure 3 and Figure 7: BLEU by source length, as a gain over APE and absolute.

As in the paper, validation and test sentences are taken together; tests of significance are on
test sentences alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.length_bleu import Curve, LengthBleu
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    JOINED,
    longest_trained,
    positions,
)
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import Part, finding

DATASETS = ("extrapolate", "interpolate")


def build_gains(study: Study) -> Content:
    """Make Figure 3: the gain over APE; and judge lengths that training has not shown."""
    found = _compute(study)
    content = Content(findings=_beyond(study))
    for dataset, (data, cells) in found.items():
        if data is None or data.baseline is None or len(data.curves) < 2:
            content.tables.append(_table(f"figure3-{dataset}", dataset, None, (), cells))
            continue
        gains = data.gains()
        content.tables.append(_table(f"figure3-{dataset}", dataset, data, gains, cells))
        content.figures.append(
            Drawn(
                DocumentFigure(
                    name=f"figure3-{dataset}",
                    title=f"BLEU gain over APE by source length, {dataset.capitalize()}",
                    table=f"figure3-{dataset}",
                    alt=f"BLEU over APE's by source length on {dataset}; {_spoken(data, gains)}",
                ),
                length_bleu.plot_panel(data, gains=True),
            )
        )
    return content


def build_absolute(study: Study) -> Content:
    """Make Figure 7: absolute BLEU."""
    content = Content()
    for dataset, (data, cells) in _compute(study).items():
        name = f"figure7-{dataset}"
        if data is None:
            content.tables.append(_table(name, dataset, None, (), cells))
            continue
        content.tables.append(_table(name, dataset, data, data.curves, cells))
        about = DocumentFigure(
            name=name,
            title=f"BLEU by source length, {dataset.capitalize()}",
            table=name,
            alt=f"BLEU against source length, on {dataset}; {_spoken(data, data.curves)}",
        )
        content.figures.append(Drawn(about, length_bleu.plot_panel(data)))
    return content


def _compute(study: Study) -> dict[str, tuple[LengthBleu | None, dict[str, list[Cell]]]]:
    """Return dataset → the data, if anything is finished, and the finished runs by position."""
    found: dict[str, tuple[LengthBleu | None, dict[str, list[Cell]]]] = {}
    for dataset in DATASETS:
        cells = {
            position: study.finished(GRID, {"dataset": dataset, "position": position})
            for position in positions(study, dataset)
        }
        cells = {position: runs for position, runs in cells.items() if runs}
        longest = longest_trained(study) if dataset == "extrapolate" else None
        data = None
        if cells:
            data = length_bleu.compute(
                {
                    name: [study.scores(run, "valid", "test") for run in runs]
                    for name, runs in cells.items()
                },
                baseline=BASELINE if BASELINE in cells else None,
                trained=None if longest is None else (1, longest + 1),
            )
        found[dataset] = data, cells
    return found


def _table(
    name: str,
    dataset: str,
    data: LengthBleu | None,
    curves: tuple[Curve, ...],
    cells: Mapping[str, list[Cell]],
) -> DocumentTable:
    """Lay out curves: a row for each range of lengths."""
    what = "BLEU gain over APE" if name.startswith("figure3") else "BLEU"
    show = "+.2f" if name.startswith("figure3") else ".2f"
    rows: list[tuple[Entry, ...]] = []
    for place, bucket in enumerate(data.buckets if data else ()):
        fields = [
            number(None if math.isnan(curve.mean[place]) else curve.mean[place], show, cells[c])
            for c, curve in ((curve.name, curve) for curve in curves)
        ]
        segments = number(bucket.num_segments, ",", chain.from_iterable(cells.values()))
        rows.append((*words(bucket.label), segments, *fields))
    return DocumentTable(
        name=name,
        title=f"{what} by source length in subwords, {dataset.capitalize()}",
        header=("source length", "segments", *(curve.name for curve in curves)),
        rows=tuple(rows),
        notes=(
            "validation and test sentences together; mean over seeds",
            *(
                [f"training has at most {data.trained[1] - 1} subwords"]
                if data and data.trained and data.trained[1]
                else []
            ),
            *([JOINED] if dataset == "interpolate" else []),
        ),
    )


def _spoken(data: LengthBleu, curves: tuple[Curve, ...]) -> str:
    """Return where each curve begins and ends, for those who cannot see it."""
    parts = []
    for curve in curves:
        points = [
            (bucket.label, value)
            for bucket, value in zip(data.buckets, curve.mean, strict=True)
            if not math.isnan(value)
        ]
        if points:
            (first, begin), (last, end) = points[0], points[-1]
            parts.append(f"{curve.name} goes from {begin:.1f} at {first} to {end:.1f} at {last}")
    shaded = "; lengths unseen in training are shaded" if data.trained else ""
    return "; ".join(parts) + shaded + "."


def _beyond(study: Study) -> list[Finding]:
    """Compare RPE and SHAPE with APE on test sentences that are longer than those of training."""
    longest = longest_trained(study)
    findings = []
    for position in ("rpe", "shape"):
        claim = ClaimSpec(
            claim=f"On Extrapolate {position.upper()} translates sentences longer than those of"
            " training better than APE.",
            rule="better",
            test={"position": position},
            against={"position": BASELINE},
            paper="Figure 3a: RPE and SHAPE gain over APE beyond 50 subwords",
        )
        label = f"{position} against {BASELINE}, sources over {longest} subwords"
        part = _compare_longer(study, position, longest)
        findings.append(finding(claim, {label: part}, study.scale))
    return findings


def _compare_longer(study: Study, position: str, longest: int) -> Part:
    cells = study.finished(GRID, {"dataset": "extrapolate"})
    if cells and (study.prepared(cells[0]).test.source_lengths > longest).sum() < FEW_SEGMENTS:
        return Part({}, reason=f"fewer than {FEW_SEGMENTS} test sentences are longer")
    test, against = ({"dataset": "extrapolate", "position": name} for name in (position, BASELINE))
    return study.compare(GRID, test, against, lengths=(longest + 1, None))


_AXES = {"dataset": DATASETS}
FIGURE3 = Item("Figure 3: BLEU gain over APE by source length", (GRID,), build_gains, axes=_AXES)
FIGURE7 = Item("Figure 7: BLEU by source length", (GRID,), build_absolute, axes=_AXES)
