"""Figure 2 and Figure 6: how alike the encoder's states are when all positions are shifted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from shapeshift.lab.analysis import similarity
from shapeshift.lab.analysis.similarity import OFFSETS, ShiftSimilarity, SystemSimilarity
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.shape.shared import GRID, PAIR, paired
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import NOT_MEASURED, Part, finding
from shapeshift.training.precision import choose_device

_DATASET = "interpolate"  # of section 3.2
_NUM_SENTENCES = 10


def build_one(study: Study) -> Content:
    """Make Figure 2: one sentence."""
    runs, data = _compute(study)
    tables = [matrices("figure2", "Similarity of states, one sentence", data, 0, runs)]
    figures = _draw("figure2", "Encoder states under four offsets, one sentence", data, 0)
    return Content(tables, figures, [_finding(study, data, "of one sentence", 0)])


def build_ten(study: Study) -> Content:
    """Make Figure 6: ten sentences, and the same for offsets that training has shown."""
    runs, data = _compute(study)
    inner = _compute(study, inside=True)[1]
    inner = [] if inner and inner[0].offsets == data[0].offsets else inner  # K = 500
    tables = [
        matrices("figure6", "Similarity of states, mean of ten sentences", data, None, runs),
        _by_layer(data, inner, runs),
        _by_sentence(data, runs),
    ]
    figures = _draw("figure6", "Encoder states under four offsets, ten sentences", data, None)
    findings = [_finding(study, data, f"of {_NUM_SENTENCES} sentences")]
    if inner:
        what = f"of {_NUM_SENTENCES} sentences, offsets up to the K of training"
        findings.append(_finding(study, inner, what))
    return Content(tables, figures, findings)


def _compute(
    study: Study, *, inside: bool = False
) -> tuple[list[tuple[Cell, Cell]], list[ShiftSimilarity]]:
    """Return the runs of APE and SHAPE and their data, for each seed that both have.

    Args:
        study: with the runs.
        inside: offsets from 0 to SHAPE's K, spaced as the paper's are up to 500.
    """
    runs = list(paired(study, _DATASET).values())
    return runs, [compare(study, pair, _inside(pair[1]) if inside else OFFSETS) for pair in runs]


def _inside(shape: Cell) -> tuple[int, ...]:
    most: int = shape.config.position.position_ids["max_offset"]
    return tuple(sorted({0, most // 5, most // 2, most}))


def compare(study: Study, cells: Sequence[Cell], offsets: tuple[int, ...]) -> ShiftSimilarity:
    """Return how alike the states of some runs are, on the first ten validation sentences.

    Args:
        study: with the runs.
        cells: finished, of one seed and on the same data; named by `position`.
        offsets: see `analysis.similarity.compute`.
    """

    def compute() -> ShiftSimilarity:
        store = study.prepared(cells[0]).valid
        sentences = [store[i][0].tolist() for i in range(min(_NUM_SENTENCES, len(store)))]
        device = choose_device(cells[0].config.training.device)
        models = {cell.axes["position"]: study.run(cell).model(device=device) for cell in cells}
        return similarity.compute(models, sentences, offsets)

    name = f"similarity-{_NUM_SENTENCES}-{'-'.join(map(str, offsets))}"
    return study.computed(name, ShiftSimilarity, cells, compute)


def _finding(
    study: Study, data: Sequence[ShiftSimilarity], what: str, sentence: int | None = None
) -> Finding:
    """Compare SHAPE's mean similarity over the layers (without the embeddings) with APE's."""

    def mean(system: SystemSimilarity) -> float:
        layers = range(1, system.num_layers + 1)
        return fmean(system.invariance(layer, sentence) for layer in layers)

    claim = ClaimSpec(
        claim=f"A shift changes the states of SHAPE's encoder less than those of APE's ({what}).",
        rule="threshold",
        at_least=0.0,
        paper="mean cosine of SHAPE's states almost always 1.0, whatever the offsets; APE's not",
    )
    values = {
        seed: mean(each.systems[1]) - mean(each.systems[0])
        for seed, each in zip(paired(study, _DATASET), data, strict=True)
    }
    offsets = f" under offsets {_offsets(data[0])}" if data else ""
    label = f"mean cosine of states{offsets}, SHAPE's minus APE's"
    part = Part(values, reason="" if values else NOT_MEASURED)
    return finding(claim, {label: part}, study.scale)


def matrices(
    name: str,
    title: str,
    data: Sequence[ShiftSimilarity],
    sentence: int | None,
    runs: Sequence[Sequence[Cell]],
) -> DocumentTable:
    """Lay out what the figure shows: the first seed's matrices.

    Args:
        name, title: of the table.
        data: of each seed.
        sentence: see `analysis.similarity.plot`.
        runs: of each seed, in the order of its systems.
    """
    offsets = data[0].offsets if data else OFFSETS
    rows = [
        (*words(f"{system.name}, {layer_name(layer)}", str(offset)), *fields)
        for number_of_system, system in enumerate(data[0].systems if data else ())
        for layer in range(system.num_layers + 1)
        for offset, values in zip(offsets, system.matrix(layer, sentence), strict=True)
        for fields in [[number(x, ".4f", [runs[0][number_of_system]]) for x in values]]
    ]
    return DocumentTable(
        name=name,
        title=title,
        header=("states", "offset", *map(str, offsets)),
        rows=tuple(rows),
        notes=(
            "Interpolate; mean cosine over the positions of the sentence",
            *([f"seed {runs[0][0].seed}"] if runs else []),
        ),
    )


def _by_layer(
    data: Sequence[ShiftSimilarity],
    inner: Sequence[ShiftSimilarity],
    runs: Sequence[tuple[Cell, Cell]],
) -> DocumentTable:
    """Lay out one number for each layer, system and set of offsets."""
    columns: list[tuple[str, list[Entry]]] = []
    for group in (data, inner) if inner else (data,):
        for place, name in enumerate(PAIR):
            cells = [pair[place] for pair in runs]
            title = f"{name}, {_offsets(group[0])}" if group else name
            columns.append((title, [number(x, ".4f", cells) for x in _layers(group, place)]))
    rows = zip(*(fields for _, fields in columns), strict=True)
    return DocumentTable(
        name="figure6-layers",
        title="Mean similarity of states under two different offsets, for each layer",
        header=("states", *(title for title, _ in columns)),
        rows=tuple((*words(layer_name(n)), *fields) for n, fields in enumerate(rows, 1)),
        notes=(
            f"Interpolate; mean over {len(runs)} seed{'s' * (len(runs) != 1)} and ten sentences",
            "1: a shift changes no direction of any state",
        ),
    )


def _layers(
    data: Sequence[ShiftSimilarity], number_of_system: int, sentence: int | None = None
) -> list[float]:
    """Return the mean over seeds for each layer, without the embeddings."""
    systems = [each.systems[number_of_system] for each in data]
    return [
        fmean(system.invariance(layer, sentence) for system in systems)
        for layer in (range(1, systems[0].num_layers + 1) if systems else ())
    ]


def _by_sentence(
    data: Sequence[ShiftSimilarity], runs: Sequence[tuple[Cell, Cell]]
) -> DocumentTable:
    """Lay out the ten sentences, each of which has a figure of its own in the paper."""
    rows: list[tuple[Entry, ...]] = []
    for sentence in range(len(data[0].systems[0].sentences) if data else 0):
        fields: list[Entry] = []
        for place in range(len(PAIR)):
            cells = [pair[place] for pair in runs]
            layers = _layers(data, place, sentence)
            fields += [number(x, ".4f", cells) for x in (fmean(layers), min(layers))]
        rows.append((*words(str(sentence + 1)), *fields))
    return DocumentTable(
        name="figure6-sentences",
        title="Mean similarity of states under two different offsets, for each sentence",
        header=("sentence", *(f"{name}, {what}" for name in PAIR for what in ("mean", "lowest"))),
        rows=tuple(rows),
        notes=(
            f"offsets {_offsets(data[0]) if data else ''}; mean over seeds; mean over the layers,"
            " and in the lowest of them",
        ),
    )


def _draw(
    name: str, title: str, data: Sequence[ShiftSimilarity], sentence: int | None
) -> list[Figure]:
    if not data:
        return []
    first = data[0]
    ranges = [
        f"{system.name} from {min(found):.2f} to {max(found):.2f}"
        for system in first.systems
        for found in [
            [system.invariance(n, sentence) for n in range(1, system.num_layers + 1)],
        ]
    ]
    alt = (
        "Heat maps of the similarity of encoder states under the offsets"
        f" {_offsets(first)}: a row for each of ape and shape, a column for the embeddings and for"
        f" each layer. Means over the layers: {'; '.join(ranges)}."
    )
    about = DocumentFigure(name=name, title=title, table=name, alt=alt)
    return [Figure(about, similarity.plot(first, sentence))]


def layer_name(layer: int) -> str:
    """Return what people call a layer's states; 0 are the embeddings."""
    return "embeddings" if layer == 0 else f"layer {layer}"


def _offsets(data: ShiftSimilarity) -> str:
    return ", ".join(map(str, data.offsets))


_AXES = {"dataset": _DATASET, "position": PAIR}
FIGURE2 = Item("Figure 2: similarity of states under offsets", (GRID,), build_one, axes=_AXES)
FIGURE6 = Item("Figure 6: similarity of states, ten sentences", (GRID,), build_ten, axes=_AXES)
