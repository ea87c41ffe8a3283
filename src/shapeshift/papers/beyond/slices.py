"""Every preset trained on slices of the lengths: Miyazaki et al. (2024), Figure 3, for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shapeshift.analysis import length_bleu
from shapeshift.analysis.length_bleu import LengthBleu
from shapeshift.data.config import LengthSlice
from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import LATER, all_better
from shapeshift.papers.beyond.master import BASELINE, relative, renumbered
from shapeshift.papers.beyond.panels import draw_panels
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentFigure, DocumentTable, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.nhk.figure3 import Bounds, label
from shapeshift.papers.study import Study

GRID = "beyond-slices"
INSIDE, BELOW, ABOVE = "inside", "below", "above"


def build(study: Study) -> Content:
    """Make the table, BLEU by source length, and judge lengths that training never showed."""
    slices = {name: _bounds(study, name) for name in study.settings(GRID, "lengths")}
    columns = {
        place: Column(_against_baseline(study, slices, place)) for place in (INSIDE, BELOW, ABOVE)
    }
    found = _measured(study, slices)
    return Content(
        tables=[_scores(study, slices, columns), _by_length(study, slices)],
        figures=[_figure(found)] if found else [],
        findings=_findings(study, slices, columns),
    )


def ranges(bounds: Bounds | None) -> dict[str, Bounds]:
    """Return which source lengths are inside a slice, below and above it; a side that has none is
    left out.

    Args:
        bounds: of the slice; `None` for all lengths.
    """
    low, high = bounds or (0, None)
    found: dict[str, Bounds] = {INSIDE: (low, high)}
    if low > 1:  # no sentence has length 0
        found[BELOW] = (0, low)
    if high is not None:
        found[ABOVE] = (high, None)
    return found


def _bounds(study: Study, name: str) -> Bounds | None:
    dataset = study.cells(GRID, {"lengths": name})[0].config.data.dataset
    return (dataset.min_length, dataset.max_length) if isinstance(dataset, LengthSlice) else None


def _system(position: str, bounds: Bounds | None) -> str:
    return f"{position} on {label(bounds)}"


def _against_baseline(
    study: Study, slices: Mapping[str, Bounds | None], place: str
) -> list[Comparison]:
    """Return the tests of all positions, each against the baseline trained on the same slice."""
    made = []
    for name, bounds in slices.items():
        lengths = ranges(bounds).get(place)
        if lengths is None or _num_sentences(study, name, lengths) < FEW_SEGMENTS:
            continue
        axes = {"lengths": name}
        for tests in study.comparisons(GRID, "position", BASELINE, axes, lengths=lengths).values():
            made += [
                replace(
                    test,
                    system=_system(test.system, bounds),
                    baseline=_system(test.baseline, bounds),
                )
                for test in tests
            ]
    return made


def _num_sentences(study: Study, name: str, lengths: Bounds) -> int:
    """Return how many test sentences have these lengths; 0 where no run is finished."""
    low, high = lengths
    cells = study.finished(GRID, {"lengths": name})
    found = study.prepared(cells[0]).test.source_lengths if cells else ()
    return sum(low <= n and (high is None or n < high) for n in found)


def _scores(
    study: Study, slices: Mapping[str, Bounds | None], columns: Mapping[str, Column]
) -> DocumentTable:
    rows = []
    for name, bounds in slices.items():
        for position in study.settings(GRID, "position"):
            cells = study.finished(GRID, {"lengths": name, "position": position})
            system = _system(position, bounds)
            fields = (column.entry(system, cells) for column in columns.values())
            rows.append((*words(label(bounds), position), *fields))
    return DocumentTable(
        name="slices",
        title="Test BLEU inside and outside the lengths of training",
        header=("trained on", "position", *(f"BLEU {place}" for place in columns)),
        rows=tuple(rows),
        notes=(
            "lengths in source subwords; inside, below, above: test sentences of lengths as in"
            " training, of shorter and of longer ones",
            f"a dash: not finished, or under {FEW_SEGMENTS} sentences of such lengths",
            note(f"{BASELINE} trained on the same lengths"),
        ),
    )


def _by_length(study: Study, slices: Mapping[str, Bounds | None]) -> DocumentTable:
    edges = (0, *study.cells(GRID)[0].config.evaluation.edges)
    buckets = [label(bounds) for bounds in zip(edges, (*edges[1:], None), strict=True)]
    rows = []
    for name, bounds in slices.items():
        for position in study.settings(GRID, "position"):
            axes = {"lengths": name, "position": position}
            fields = (
                study.entry(study.rows(GRID, "BLEU", axes, dataset="test", bucket=bucket))
                for bucket in buckets
            )
            rows.append((*words(label(bounds), position), *fields))
    return DocumentTable(
        name="lengths",
        title="BLEU by source length, by the lengths of the training pairs",
        header=("trained on", "position", *buckets),
        rows=tuple(rows),
        notes=("mean over seeds",),
    )


def _measured(study: Study, slices: Mapping[str, Bounds | None]) -> dict[str, LengthBleu]:
    """Return BLEU by length for each slice with a finished run, of the positions that are finished
    on all of these."""
    positions = study.settings(GRID, "position")
    done = {
        name: {
            position: cells
            for position in positions
            if (cells := study.finished(GRID, {"lengths": name, "position": position}))
        }
        for name in slices
    }
    done = {name: runs for name, runs in done.items() if runs}
    shared = [position for position in positions if all(position in runs for runs in done.values())]
    return {
        label(slices[name]): length_bleu.compute(
            {position: [study.scores(cell) for cell in runs[position]] for position in shared},
            trained=slices[name],
        )
        for name, runs in done.items()
        if shared
    }


def _figure(found: Mapping[str, LengthBleu]) -> Drawn:
    about = DocumentFigure(
        name="lengths",
        title="BLEU by source length of models trained on slices of the lengths; bars are one"
        " standard deviation over seeds",
        table="lengths",
        alt=f"{len(found)} panels, one for each set of training lengths, with lines of BLEU over"
        " source length; lengths that training never showed are shaded. "
        + " ".join(f"Trained on {name}, {_ends(data)}." for name, data in found.items()),
    )
    panels = {f"trained on {name}": data for name, data in found.items()}
    return Drawn(about, draw_panels(panels))


def _ends(data: LengthBleu) -> str:
    """Say who is ahead at the shortest and at the greatest length that has sentences."""
    filled = [place for place, bucket in enumerate(data.buckets) if bucket.num_segments]
    ends = dict.fromkeys((filled[0], filled[-1]))
    best = {place: max(data.curves, key=lambda curve: curve.mean[place]) for place in ends}
    return " and ".join(
        f"{curve.name} is ahead at {data.buckets[place].label} with {curve.mean[place]:.1f}"
        for place, curve in best.items()
    )


def _findings(
    study: Study, slices: Mapping[str, Bounds | None], columns: Mapping[str, Column]
) -> list[Finding]:
    invariant, drawn = relative(study, GRID), renumbered(study, GRID)
    claims = (
        ("Kinds that are shift invariant", "longer", invariant, ABOVE),
        ("Kinds that are shift invariant", "shorter", invariant, BELOW),
        ("Positions renumbered in training, shifted or randomized,", "longer", drawn, ABOVE),
    )
    return [
        all_better(
            f"{who} translate sentences {which} than any in training better than {BASELINE},"
            " whatever the slice of lengths.",
            columns[place].comparisons,
            [
                _system(name, bounds)
                for bounds in slices.values()
                if place in ranges(bounds)
                for name in names
            ],
            LATER.get(study.scale, ""),
        )
        for who, which, names, place in claims
    ]


ITEM = Item("Every preset trained on slices of the lengths", (GRID,), build)
