"""How alike every preset's encoder states are under offsets: Kiyono et al. (2021), Figures 2 and 6,
for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from shapeshift.analysis import similarity as analysis
from shapeshift.analysis.similarity import OFFSETS, ShiftSimilarity, SystemSimilarity
from shapeshift.experiments.grid import Cell
from shapeshift.papers.beyond.master import BASELINE, DATASETS, is_declared, renumbered
from shapeshift.papers.claims import NOT_MEASURED, all_of, finding
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape import similarity
from shapeshift.papers.shape.shared import CARRIED, seeds
from shapeshift.papers.shape.similarity import INVARIANT, layer_name
from shapeshift.papers.study import Study

_AXES = {"dataset": "interpolate"}  # of section 3.2

Measured = Mapping[str, Mapping[int, tuple[Cell, ShiftSimilarity]]]
"""Position → seed → its run and the similarities of its states."""


def build(study: Study) -> Content:
    """Make the table, heat maps of what is not shift invariant, and judge positions that are
    renumbered in training."""
    found: dict[str, dict[int, tuple[Cell, ShiftSimilarity]]] = {
        cell.axes["position"]: {} for cell in study.cells(DATASETS, _AXES)
    }
    for cell in study.finished(DATASETS, _AXES):
        data = similarity.compare(study, [cell], OFFSETS)
        found[cell.axes["position"]][cell.seed] = cell, data
    content = Content(tables=[_by_layer(study, found)], findings=[_finding(study, found)])
    runs = [next(iter(own.values())) for own in found.values() if own]
    # Those of shift-invariant kinds would be ones alone, which the table says as well.
    first = [run for run in runs if not is_declared(run[0].config.position.scheme)]
    if first:
        merged = replace(first[0][1], systems=tuple(_system(data) for _, data in first))
        title = "Encoder states that four offsets change, mean of ten sentences"
        cells = [cell for cell, _ in first]
        content.tables.append(similarity.matrices("similarity", title, [merged], None, [cells]))
        content.figures.append(_figure(title, merged))
    return content


def _system(data: ShiftSimilarity) -> SystemSimilarity:
    [system] = data.systems
    return system


def _layers(own: Mapping[int, tuple[Cell, ShiftSimilarity]]) -> list[float]:
    """Return the mean over seeds and pairs of offsets, of the embeddings and each layer."""
    systems = [_system(data) for _, data in own.values()]
    return [
        fmean(system.invariance(layer) for system in systems)
        for layer in (range(systems[0].num_layers + 1) if systems else ())
    ]


def _by_layer(study: Study, found: Measured) -> DocumentTable:
    num_layers = study.cells(DATASETS, _AXES)[0].config.model.encoder_layers
    rows = []
    for name, own in found.items():
        cells = [cell for cell, _ in own.values()]
        fields: Sequence[Entry] = [number(value, ".4f", cells) for value in _layers(own)]
        rows.append((*words(name), *(fields or [missing()] * (num_layers + 1))))
    return DocumentTable(
        name="layers",
        title="Mean similarity of states under two different offsets",
        header=("position", *map(layer_name, range(num_layers + 1))),
        rows=tuple(rows),
        notes=(
            f"Interpolate; offsets {', '.join(map(str, OFFSETS))}; mean cosine over the positions"
            f" of ten sentences; {study.spread(DATASETS, 'mean')}",
            "1: a shift changes no direction of any state; the embeddings are those that the first"
            " layer gets",
        ),
    )


def _figure(title: str, data: ShiftSimilarity) -> Drawn:
    ends = [
        f"{system.name} {fmean(map(system.invariance, range(1, system.num_layers + 1))):.2f}"
        for system in data.systems
    ]
    about = DocumentFigure(
        name="similarity",
        title=title,
        table="similarity",
        alt="Heat maps of the similarity of encoder states under the offsets"
        f" {', '.join(map(str, data.offsets))}, a row for each position, a column for the"
        f" embeddings and for each layer. Means over the layers: {', '.join(ends)}.",
    )
    return Drawn(about, analysis.plot(data))


def _finding(study: Study, found: Measured) -> Finding:
    systems = [name for name in renumbered(study, DATASETS) if name in found]
    layers = {name: _layers(found[name])[1:] for name in (BASELINE, *systems)}
    told = [
        f"{name} {fmean(values):.4f} on average, {min(values):.4f} in the lowest layer"
        for name, values in layers.items()
        if values
    ]
    measured = {seed for name in layers for seed in found[name]}
    return finding(
        study,
        claim="A shift does not change the encoder's states with positions renumbered in training,"
        f" shifted or randomized: their similarity is {INVARIANT} or more in every layer, and"
        f" {BASELINE}'s is clearly below.",
        verdict=all_of(similarity.judge(layers[BASELINE], layers[name]) for name in systems),
        measured=f"{'; '.join(told)} ({seeds(measured)}). No test: a limit of {INVARIANT}, and"
        f" {similarity.CLEARLY} between the averages"
        if told
        else NOT_MEASURED,
        paper="SHAPE almost always 1.0, whatever the offsets; APE not",
        elsewhere=CARRIED,
    )


ITEM = Item("Similarity of every preset's states under offsets", (DATASETS,), build, axes=_AXES)
