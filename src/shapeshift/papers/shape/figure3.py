"""Figure 3 and Figure 7: BLEU by source length, as a gain over APE and absolute.

As in the paper, validation and test sentences are taken together; tests of significance are on
test sentences alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    return _build(study, "figure3", gains=True, findings=_beyond(study))


def build_absolute(study: Study) -> Content:
    """Make Figure 7: absolute BLEU."""
    return _build(study, "figure7", gains=False)


def _build(study: Study, item: str, *, gains: bool, findings: Sequence[Finding] = ()) -> Content:
    content = Content(findings=[*findings])
    for dataset in DATASETS:
        data, cells = _compute(study, dataset)
        name = f"{item}-{dataset}"
        curves: tuple[Curve, ...] = ()
        if data is not None and not gains:
            curves = data.curves
        elif data is not None and data.baseline is not None:
            curves = data.gains()
        if data is None or not curves:
            content.tables.append(_table(name, dataset, None, (), cells, gains=gains))
            continue
        content.tables.append(_table(name, dataset, data, curves, cells, gains=gains))
        shown = "BLEU over APE's by source length on" if gains else "BLEU against source length, on"
        about = DocumentFigure(
            name=name,
            title=f"BLEU {'gain over APE ' if gains else ''}by source length,"
            f" {dataset.capitalize()}",
            table=name,
            alt=f"{shown} {dataset}; {_spoken(data, curves)}",
        )
        content.figures.append(Drawn(about, length_bleu.plot_panel(data, gains=gains)))
    return content


def _compute(study: Study, dataset: str) -> tuple[LengthBleu | None, dict[str, list[Cell]]]:
    """Return the data, if anything is finished, and the finished runs by position."""
    cells = {
        position: study.finished(GRID, {"dataset": dataset, "position": position})
        for position in positions(study, dataset)
    }
    cells = {position: runs for position, runs in cells.items() if runs}
    if not cells:
        return None, cells
    scores = {
        name: [study.scores(run, "valid", "test") for run in runs] for name, runs in cells.items()
    }
    trained = (1, longest_trained(study) + 1) if dataset == "extrapolate" else None
    baseline = BASELINE if BASELINE in cells else None
    return length_bleu.compute(scores, baseline=baseline, trained=trained), cells


def _table(
    name: str,
    dataset: str,
    data: LengthBleu | None,
    curves: tuple[Curve, ...],
    cells: Mapping[str, list[Cell]],
    *,
    gains: bool,
) -> DocumentTable:
    """Lay out curves: a row for each range of lengths."""
    what, show = ("BLEU gain over APE", "+.2f") if gains else ("BLEU", ".2f")
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
