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
"""Name of the values for a claim."""

Runs = Sequence[tuple[Cell, Cell]]
"""APE and SHAPE, for each seed that both have."""


def one_sentence(study: Study, grid: str) -> Content:
    """Make Figure 2."""
    return _make(study, grid, "figure2", "one sentence", 0)


def ten_sentences(study: Study, grid: str) -> Content:
    """Make Figure 6, with a number for each layer and for each sentence."""
    content = _make(study, grid, "figure6", "mean of ten sentences", None)
    runs = [*paired(study, grid, _AXES).values()]
    data = [compare(study, pair) for pair in runs]
    content.tables += [_by_layer(data, runs), _by_sentence(data, runs)]
    return content


def _make(study: Study, grid: str, name: str, what: str, sentence: int | None) -> Content:
    """Make the heat maps of one sentence, or of the mean over all, and the table behind them."""
    runs = paired(study, grid, _AXES)
    data = {seed: compare(study, pair) for seed, pair in runs.items()}
    leads = {}
    for seed, each in data.items():
        ape, shape = (fmean(_layers(system, sentence)) for system in each.systems)
        leads[seed] = shape - ape
    content = Content(values={CLAIM: leads})
    first = next(iter(data), None)
    if first is None:
        rows, notes = [], []
    else:
        rows = _matrices(data[first], sentence, runs[first])
        notes = [f"seed {first}"]
        content.figures.append(
            _draw(name, f"Encoder states under four offsets, {what}", data[first], sentence)
        )
    table = DocumentTable(
        name=name,
        title=f"Similarity of states, {what}",
        header=("states", "offset", *map(str, OFFSETS)),
        rows=tuple(rows),
        notes=("Interpolate; mean cosine over the positions of the sentence", *notes),
    )
    content.tables.append(table)
    return content


def compare(study: Study, pair: tuple[Cell, Cell]) -> ShiftSimilarity:
    """Return how similar the states of two runs are, on the first ten validation sentences.

    Args:
        study: with the runs.
        pair: finished, of one seed and on the same data.
    """

    def compute() -> ShiftSimilarity:
        store = study.prepared(pair[0]).valid
        sentences = [store[i][0].tolist() for i in range(min(_NUM_SENTENCES, len(store)))]
        device = choose_device(pair[0].config.training.device)
        models = {cell.axes["position"]: study.run(cell).model(device=device) for cell in pair}
        return similarity.compute(models, sentences, OFFSETS)

    name = f"similarity-{_NUM_SENTENCES}-{'-'.join(map(str, OFFSETS))}"
    return study.computed(name, ShiftSimilarity, pair, compute)


def _layers(system: SystemSimilarity, sentence: int | None = None) -> list[float]:
    """Return the similarity in each layer, without the embeddings."""
    return [system.invariance(n, sentence) for n in range(1, system.num_layers + 1)]


def _matrices(
    data: ShiftSimilarity, sentence: int | None, cells: Sequence[Cell]
) -> list[tuple[Entry, ...]]:
    """Return the rows that hold what the figure shows."""
    return [
        (
            *words(f"{system.name}, {layer_name(layer)}", str(offset)),
            *(number(value, ".4f", [cell]) for value in values),
        )
        for system, cell in zip(data.systems, cells, strict=True)
        for layer in range(system.num_layers + 1)
        for offset, values in zip(OFFSETS, system.matrix(layer, sentence), strict=True)
    ]


def _by_layer(data: Sequence[ShiftSimilarity], runs: Runs) -> DocumentTable:
    """Lay out one number for each layer and system: the mean over seeds and sentences."""
    columns = []
    for place in range(len(PAIR)):
        layers = zip(*(_layers(each.systems[place]) for each in data), strict=True)
        cells = [pair[place] for pair in runs]
        columns.append([number(fmean(values), ".4f", cells) for values in layers])
    rows = enumerate(zip(*columns, strict=True), 1)
    return DocumentTable(
        name="figure6-layers",
        title="Mean similarity of states under two different offsets, for each layer",
        header=("states", *PAIR),
        rows=tuple((*words(layer_name(n)), *fields) for n, fields in rows),
        notes=(
            f"offsets {_listed(OFFSETS)}; mean over seeds and ten sentences",
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


def _draw(name: str, title: str, data: ShiftSimilarity, sentence: int | None) -> Figure:
    layers = {system.name: _layers(system, sentence) for system in data.systems}
    ranges = [f"{system} from {min(x):.2f} to {max(x):.2f}" for system, x in layers.items()]
    alt = (
        f"Heat maps of the similarity of encoder states under the offsets {_listed(OFFSETS)}: a"
        " row for each of ape and shape, a column for the embeddings and for each layer. Means over"
        f" the layers: {'; '.join(ranges)}."
    )
    about = DocumentFigure(name=name, title=title, table=name, alt=alt)
    return Figure(about, similarity.plot(data, sentence))


def layer_name(layer: int) -> str:
    """Return what people call a layer's states; 0 are the embeddings."""
    return "embeddings" if layer == 0 else f"layer {layer}"


def _listed(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets))
