"""The clipping distance of every kind that has one: Shaw et al. (2018), Table 2, for all of them,
inside and beyond the lengths of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shapeshift.data.config import Extrapolate
from shapeshift.papers.beyond.column import Column, note
from shapeshift.papers.beyond.judge import all_better
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study, words

GRID = "beyond-clipping"
FAR, NEAR = "64", "16"
"""Two distances: one that no training pair reaches, or few do, and one that many do."""


def build(study: Study) -> Content:
    """Make the table and judge what distances that were never trained do."""
    longest = _max_length(study)
    inside, beyond = (
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
                _entry(study, inside, kind, distance),
                _entry(study, beyond, kind, distance),
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
        for kind, tested in beyond.items()
        for test in tested.comparisons
        if test.system == NEAR
    ]
    finding = all_better(
        f"A kind clipped at {NEAR}, a distance that training shows, translates sentences longer"
        f" than any in training better than one clipped at {FAR}.",
        near,
        kinds,
        "some hundred updates on a small grammar" * (study.scale == "tiny"),
    )
    return Content(tables=[table], findings=[finding])


def _max_length(study: Study) -> int:
    [longest] = {
        cell.config.data.dataset.max_length
        for cell in study.cells(GRID)
        if isinstance(cell.config.data.dataset, Extrapolate)
    }
    return longest


def _entry(study: Study, columns: Mapping[str, Column], kind: str, distance: str) -> Entry:
    cells = study.finished(GRID, {"kind": kind, "max_distance": distance})
    return columns.get(kind, Column([])).entry(distance, cells)


ITEM = Item("The clipping distance of every kind that has one", (GRID,), build)
