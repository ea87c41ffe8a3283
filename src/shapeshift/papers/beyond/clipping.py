"""The clipping distance of every kind that has one: Shaw et al. (2018), Table 2, for all of them,
inside and beyond the lengths of training."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from shapeshift.data.config import Extrapolate
from shapeshift.experiments.grid import Cell
from shapeshift.papers.beyond.judge import LATER, all_better
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "beyond-clipping"
FAR, NEAR = "64", "16"
"""Two distances: one that no training pair reaches, or few do, and one that many do."""


def build(study: Study) -> Content:
    """Make the table and judge what distances that were never trained do."""
    longest = _max_length(study)
    columns = tuple(
        {kind: Column(tests) for (kind,), tests in found.items()}
        for found in (
            study.comparisons(GRID, "max_distance", FAR, lengths=lengths)
            for lengths in ((0, longest + 1), (longest + 1, None))
        )
    )
    settings = {(cell.axes["kind"], cell.axes["max_distance"]): None for cell in study.cells(GRID)}
    table = DocumentTable(
        name="clipping",
        title="Test BLEU by clipping distance, Extrapolate",
        header=("kind", "max_distance", "BLEU inside", "BLEU beyond"),
        rows=tuple(
            (
                *words(kind, distance),
                *(
                    column[kind].entry(distance, _finished(study, kind, distance))
                    if kind in column
                    else _alone(study, kind, distance, longest, place)
                    for place, column in enumerate(columns)
                ),
            )
            for kind, distance in settings
        ),
        notes=(
            f"inside, beyond: sources of up to {longest} subwords, the longest in training, and of"
            " more",
            note(f"max_distance {FAR} of the same kind"),
        ),
    )
    kinds = sorted(kind for kind, distance in settings if distance == NEAR)
    near = [
        replace(test, system=kind)
        for kind, tested in columns[1].items()
        for test in tested.comparisons
        if test.system == NEAR
    ]
    finding = all_better(
        f"A kind clipped at {NEAR}, a distance that training shows, translates sentences longer"
        f" than any in training better than one clipped at {FAR}.",
        near,
        kinds,
        LATER.get(study.scale, ""),
    )
    return Content(tables=[table], findings=[finding])


def _max_length(study: Study) -> int:
    [longest] = {
        cell.config.data.dataset.max_length
        for cell in study.cells(GRID)
        if isinstance(cell.config.data.dataset, Extrapolate)
    }
    return longest


def _finished(study: Study, kind: str, distance: str) -> list[Cell]:
    return study.finished(GRID, {"kind": kind, "max_distance": distance})


def _alone(study: Study, kind: str, distance: str, longest: int, bucket: int) -> Entry:
    """Return the mean BLEU of a kind with which no other distance can be compared.

    Args:
        study, kind, distance: whose.
        longest: source length in training.
        bucket: 0 for sources of up to that length, 1 for longer ones.
    """
    cells = _finished(study, kind, distance)
    made = [study.scores(cell, edges=(longest + 1,)).by_length for cell in cells]
    values = [x[bucket].bleu for x in made if x is not None]
    found = [value for value in values if value is not None]
    return number(fmean(found) if found else None, cells=cells)


ITEM = Item("The clipping distance of every kind that has one", (GRID,), build)
