"""Figure 3 and Figure 7: BLEU by source length, as a gain over APE and absolute.

As in the paper, validation and test sentences are taken together; tests of significance are on
test sentences alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.length_bleu import Curve, LengthBleu
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import Comparison
from shapeshift.papers.claims import (
    LEARNED,
    NOT_MEASURED,
    Untested,
    better,
    finding,
    told,
    versus,
)
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    JOINED,
    LEARNS_LATE,
    PAIR,
    SHORT_RUNS,
    longest_trained,
    paired,
    positions,
)
from shapeshift.papers.study import Study

DATASETS = ("extrapolate", "interpolate")

_NOT_COMPARED = (
    f"not compared: no length has {FEW_SEGMENTS} sentences and a BLEU of {LEARNED:g} for APE or"
    " SHAPE"
)


def build_gains(study: Study) -> Content:
    """Make Figure 3: the gain over APE; and judge lengths that training has not shown."""
    found = _compute(study)
    content = Content(findings=_beyond(study, found["extrapolate"][0]))
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
    content.findings.append(_at_every_length(study))
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


def judge_lengths(data: LengthBleu | None, system: str) -> Verdict:
    """Return whether a system is ahead of the baseline at every length; one where it is behind
    suffices to say no. Left aside are lengths of fewer than `FEW_SEGMENTS` sentences, and those
    that neither can translate (see `claims.LEARNED`)."""
    gains = [gain for _, gain in _gains(data, system)]
    if any(gain < 0 for gain in gains):
        return "does not hold"
    return "holds" if gains and min(gains) > 0 else "cannot tell"


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


def _gains(data: LengthBleu | None, system: str) -> Iterator[tuple[str, float]]:
    """Yield the label and the gain of each length that `judge_lengths` looks at."""
    curves = {curve.name: curve.mean for curve in data.curves} if data else {}
    if data is None or data.baseline is None or system not in curves:
        return
    for bucket, own, base in zip(data.buckets, curves[system], curves[data.baseline], strict=True):
        if bucket.num_segments >= FEW_SEGMENTS and max(own, base) >= LEARNED:
            yield bucket.label, own - base


def _beyond(study: Study, data: LengthBleu | None) -> list[Finding]:
    """Judge RPE and SHAPE on test sentences that are longer than anything in training.

    Args:
        study: with the runs.
        data: BLEU by length, for people.
    """
    longest = longest_trained(study)
    unseen = {each.label for each in data.buckets if each.low > longest} if data else ()
    findings = []
    for position in ("rpe", "shape"):
        judged = {f"{position} and {BASELINE}": _test_longer(study, position, longest)}
        gains = _listed((label, gain) for label, gain in _gains(data, position) if label in unseen)
        findings.append(
            finding(
                study,
                claim=f"On Extrapolate {position.upper()} is ahead of APE on sentences longer than"
                " those of training.",
                verdict=better(judged),
                measured=f"test BLEU of sources over {longest} subwords, {told(judged)}"
                + (f"; by length, with validation sentences: {gains}" if gains else ""),
                paper="Figure 3a: RPE and SHAPE gain over APE beyond 50 subwords",
                elsewhere=LEARNS_LATE if position == "shape" else SHORT_RUNS,
            )
        )
    return findings


def _listed(gains: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{label}: {gain:+.2f}" for label, gain in gains)


def _test_longer(study: Study, position: str, longest: int) -> Comparison | Untested:
    """Test a position against APE on the test sentences that are longer than those of training."""
    axes = {"dataset": "extrapolate"}
    cells = study.finished(GRID, axes)
    if cells and (study.prepared(cells[0]).test.source_lengths > longest).sum() < FEW_SEGMENTS:
        return Untested(f"fewer than {FEW_SEGMENTS} test sentences are longer")
    pair = (position, BASELINE)
    return versus(study, GRID, "position", pair, axes, lengths=(longest + 1, None))


def _at_every_length(study: Study) -> Finding:
    pairs = paired(study, "interpolate").values()
    data = None
    if pairs:
        scores = {
            name: [study.scores(pair[place], "valid", "test") for pair in pairs]
            for place, name in enumerate(PAIR)
        }
        data = length_bleu.compute(scores, baseline=BASELINE)
    verdict = judge_lengths(data, "shape")
    gains = _listed(_gains(data, "shape"))
    return finding(
        study,
        claim="On Interpolate SHAPE is ahead of APE at every source length.",
        verdict=verdict,
        measured=f"BLEU over APE's, means over seeds, no test by length: {gains}"
        if gains
        else _NOT_COMPARED
        if data
        else NOT_MEASURED,
        paper="Figure 3b: a gain at every length",
        elsewhere=LEARNS_LATE,
    )


_AXES = {"dataset": DATASETS}
FIGURE3 = Item("Figure 3: BLEU gain over APE by source length", (GRID,), build_gains, axes=_AXES)
FIGURE7 = Item("Figure 7: BLEU by source length", (GRID,), build_absolute, axes=_AXES)
