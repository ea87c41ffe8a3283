"""Figures 2 and 6 of the SHAPE paper: how similar the encoder's states are when all positions are
shifted, on Interpolate (its section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from shapeshift.lab.analysis import similarity
from shapeshift.lab.analysis.similarity import OFFSETS, ShiftSimilarity, SystemSimilarity
from shapeshift.lab.grid import Cell
from shapeshift.papers.analyses import PAIR, paired
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study
from shapeshift.training.precision import choose_device

_AXES = {"dataset": "interpolate"}
_NUM_SENTENCES = 10

CLAIM = "mean cosine of states, SHAPE's minus APE's"
CLAIM_INSIDE = "mean cosine of states under offsets up to K, SHAPE's minus APE's"

Runs = Sequence[tuple[Cell, Cell]]
"""APE and SHAPE, for each seed that both have."""


def one_sentence(study: Study, grid: str) -> Content:
    """Make Figure 2."""
    runs = paired(study, grid, _AXES)
    data = [compare(study, pair, OFFSETS) for pair in runs.values()]
    title = "Encoder states under four offsets, one sentence"
    return Content(
        [_matrices("figure2", "Similarity of states, one sentence", data, 0, [*runs.values()])],
        _draw("figure2", title, data, 0),
        values={CLAIM: _leads(runs, data, 0)},
    )


def ten_sentences(study: Study, grid: str) -> Content:
    """Make Figure 6, and the same for offsets that training has shown."""
    runs = paired(study, grid, _AXES)
    pairs = [*runs.values()]
    data = [compare(study, pair, OFFSETS) for pair in pairs]
    inner = [compare(study, pair, _offsets_of_training(pair[1])) for pair in pairs]
    groups = [data] if inner and inner[0].offsets == OFFSETS else [data, inner]
    title = "Similarity of states, mean of ten sentences"
    return Content(
        [
            _matrices("figure6", title, data, None, pairs),
            _by_layer(groups, pairs),
            _by_sentence(data, pairs),
        ],
        _draw("figure6", "Encoder states under four offsets, ten sentences", data, None),
        values={CLAIM: _leads(runs, data), CLAIM_INSIDE: _leads(runs, inner)},
    )


def compare(study: Study, pair: tuple[Cell, Cell], offsets: tuple[int, ...]) -> ShiftSimilarity:
    """Return how similar the states of two runs are, on the first ten validation sentences.

    Args:
        study: with the runs.
        pair: finished, of one seed and on the same data.
        offsets: see `analysis.similarity.compute`.
    """

    def compute() -> ShiftSimilarity:
        store = study.prepared(pair[0]).valid
        sentences = [store[i][0].tolist() for i in range(min(_NUM_SENTENCES, len(store)))]
        device = choose_device(pair[0].config.training.device)
        models = {cell.axes["position"]: study.run(cell).model(device=device) for cell in pair}
        return similarity.compute(models, sentences, offsets)

    name = f"similarity-{_NUM_SENTENCES}-{'-'.join(map(str, offsets))}"
    return study.computed(name, ShiftSimilarity, pair, compute)


def _offsets_of_training(shape: Cell) -> tuple[int, ...]:
    """Return offsets from 0 to SHAPE's K, spaced as the paper's are up to 500."""
    most: int = shape.config.position.position_ids["max_offset"]
    return tuple(sorted({0, most // 5, most // 2, most}))


def _leads(
    seeds: dict[int, tuple[Cell, Cell]],
    data: Sequence[ShiftSimilarity],
    sentence: int | None = None,
) -> dict[int, float]:
    """Return seed → the mean similarity over SHAPE's layers minus that over APE's."""
    means = [[fmean(_layers(system, sentence)) for system in each.systems] for each in data]
    return {seed: shape - ape for seed, (ape, shape) in zip(seeds, means, strict=True)}


def _layers(system: SystemSimilarity, sentence: int | None = None) -> list[float]:
    """Return the similarity in each layer, without the embeddings."""
    return [system.invariance(n, sentence) for n in range(1, system.num_layers + 1)]


def _matrices(
    name: str, title: str, data: Sequence[ShiftSimilarity], sentence: int | None, runs: Runs
) -> DocumentTable:
    """Lay out what the figure shows: the first seed's matrices."""
    first = data[:1]
    rows = [
        (
            *words(f"{system.name}, {layer_name(layer)}", str(offset)),
            *(number(value, ".4f", [cell]) for value in values),
        )
        for each in first
        for system, cell in zip(each.systems, runs[0], strict=True)
        for layer in range(system.num_layers + 1)
        for offset, values in zip(each.offsets, system.matrix(layer, sentence), strict=True)
    ]
    return DocumentTable(
        name=name,
        title=title,
        header=("states", "offset", *map(str, OFFSETS)),
        rows=tuple(rows),
        notes=(
            "Interpolate; mean cosine over the positions of the sentence",
            *(f"seed {pair[0].seed}" for pair in runs[:1]),
        ),
    )


def _by_layer(groups: Sequence[Sequence[ShiftSimilarity]], runs: Runs) -> DocumentTable:
    """Lay out one number for each layer, system and set of offsets: the mean over seeds."""
    header, columns = ["states"], []
    for group in groups:
        for place, name in enumerate(PAIR):
            header.append(f"{name}, {_listed(group[0].offsets)}" if group else name)
            layers = zip(*(_layers(each.systems[place]) for each in group), strict=True)
            cells = [pair[place] for pair in runs]
            columns.append([number(fmean(values), ".4f", cells) for values in layers])
    rows = enumerate(zip(*columns, strict=True), 1)
    return DocumentTable(
        name="figure6-layers",
        title="Mean similarity of states under two different offsets, for each layer",
        header=tuple(header),
        rows=tuple((*words(layer_name(n)), *fields) for n, fields in rows),
        notes=(
            f"Interpolate; mean over {len(runs)} seed{'s' * (len(runs) != 1)} and ten sentences",
            "1: a shift changes no direction of any state",
        ),
    )


def _by_sentence(data: Sequence[ShiftSimilarity], runs: Runs) -> DocumentTable:
    """Lay out the ten sentences, each of which has a figure of its own in the paper."""
    rows: list[tuple[Entry, ...]] = []
    for sentence in range(len(data[0].systems[0].sentences) if data else 0):
        fields: list[Entry] = []
        for place in range(len(PAIR)):
            cells = [pair[place] for pair in runs]
            seeds = [_layers(each.systems[place], sentence) for each in data]
            layers = [fmean(values) for values in zip(*seeds, strict=True)]
            fields += [number(x, ".4f", cells) for x in (fmean(layers), min(layers))]
        rows.append((*words(str(sentence + 1)), *fields))
    return DocumentTable(
        name="figure6-sentences",
        title="Mean similarity of states under two different offsets, for each sentence",
        header=("sentence", *(f"{name}, {what}" for name in PAIR for what in ("mean", "lowest"))),
        rows=tuple(rows),
        notes=(
            f"offsets {_listed(OFFSETS)}; mean over seeds; mean over the layers, and in the lowest"
            " of them",
        ),
    )


def _draw(
    name: str, title: str, data: Sequence[ShiftSimilarity], sentence: int | None
) -> list[Figure]:
    """Draw the first seed's matrices."""
    if not data:
        return []
    layers = {system.name: _layers(system, sentence) for system in data[0].systems}
    ranges = [f"{name} from {min(own):.2f} to {max(own):.2f}" for name, own in layers.items()]
    alt = (
        f"Heat maps of the similarity of encoder states under the offsets {_listed(OFFSETS)}: a"
        " row for each of ape and shape, a column for the embeddings and for each layer. Means over"
        f" the layers: {'; '.join(ranges)}."
    )
    about = DocumentFigure(name=name, title=title, table=name, alt=alt)
    return [Figure(about, similarity.plot(data[0], sentence))]


def layer_name(layer: int) -> str:
    """Return what people call a layer's states; 0 are the embeddings."""
    return "embeddings" if layer == 0 else f"layer {layer}"


def _listed(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets))
