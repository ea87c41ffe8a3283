"""The master table: what every preset of the library gives and costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shapeshift.data.config import Extrapolate
from shapeshift.evaluation.metrics import BY_SENTENCE
from shapeshift.lab.measures import mean_of
from shapeshift.lab.properties import DECODED_LENGTH, MEMORY_LENGTH
from shapeshift.lab.results import Row
from shapeshift.lab.significance import Comparison
from shapeshift.papers.beyond import figures
from shapeshift.papers.beyond.judge import LATER, Shifts, all_better, all_export, as_declared
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import JOINED
from shapeshift.papers.study import Study
from shapeshift.positions import KINDS, Scheme

DATASETS, PROPERTIES = "beyond-datasets", "beyond-properties"
BASELINE = "ape"

_INSIDE, _BEYOND = "BLEU inside", "BLEU beyond"
_WHOLE = ("vanilla", "interpolate")
_JOINED = "BLEU interpolate"
_SENTENCES = _JOINED + BY_SENTENCE


def build(study: Study) -> Content:
    """Make the table, BLEU by source length, quality against speed, and what follows from them."""
    positions = study.settings(PROPERTIES, "position")
    columns = _columns(study)
    shifts = {name: found for name in positions if (found := _shifts(study, name)) is not None}
    master = DocumentTable(
        name="master",
        title="Every position of the library",
        header=(
            "position",
            *columns,
            *([_SENTENCES] if _JOINED in columns else []),
            "shift invariant",
            "similarity",
            "loss range",
            "training speed",
            "decoding speed",
            "memory",
            "parameters",
            "exports",
        ),
        rows=tuple(_row(study, name, columns, shifts.get(name)) for name in positions),
        notes=_notes(study),
    )
    content = Content(tables=[master], findings=_findings(study, positions, columns, shifts))
    runs = {
        name: cells
        for name in positions
        if (cells := study.finished(DATASETS, {"dataset": "extrapolate", "position": name}))
    }
    figures.add_lengths(content, study, runs, max_length(study))
    beyond = columns[_BEYOND]
    figures.add_tradeoff(
        content,
        {name: beyond.entry(name, cells) for name, cells in runs.items()},
        {name: _property(study, name, "speed") for name in runs},
        BASELINE,
    )
    return content


def max_length(study: Study) -> int:
    """Return the longest source that Extrapolate trains on, in subwords."""
    [longest] = {
        cell.config.data.dataset.max_length
        for cell in study.cells(DATASETS, {"dataset": "extrapolate"})
        if isinstance(cell.config.data.dataset, Extrapolate)
    }
    return longest


def is_declared(scheme: Scheme) -> bool:
    """Return whether the library declares a scheme shift invariant: all its kinds are."""
    return all(KINDS[part.kind].build.shift_invariant for part in scheme.parts)


def relative(study: Study, grid: str) -> list[str]:
    """Return the positions of a grid that are declared shift invariant; having none is left out."""
    schemes = {cell.axes["position"]: cell.config.position.scheme for cell in study.cells(grid)}
    return [name for name, scheme in schemes.items() if scheme.parts and is_declared(scheme)]


def renumbered(study: Study, grid: str) -> list[str]:
    """Return the positions of a grid whose indices are drawn in training."""
    schemes = {cell.axes["position"]: cell.config.position.scheme for cell in study.cells(grid)}
    return [name for name, scheme in schemes.items() if scheme.indices.name != "absolute"]


def _columns(study: Study) -> dict[str, Column]:
    longest = max_length(study)
    ranges = {_INSIDE: (0, longest + 1), _BEYOND: (longest + 1, None)}
    columns = {
        title: Column(_against_baseline(study, "extrapolate", lengths))
        for title, lengths in ranges.items()
    }
    there = study.settings(DATASETS, "dataset")
    for dataset in (name for name in _WHOLE if name in there):
        title = f"BLEU {dataset}"
        columns[title] = Column(_against_baseline(study, dataset))
    return columns


def _against_baseline(
    study: Study, dataset: str, lengths: tuple[int, int | None] | None = None
) -> list[Comparison]:
    found = study.comparisons(DATASETS, "position", BASELINE, {"dataset": dataset}, lengths=lengths)
    return found.get((dataset,), [])


def _row(
    study: Study, name: str, columns: Mapping[str, Column], shifts: Shifts | None
) -> tuple[Entry, ...]:
    scores = []
    for title, column in columns.items():
        dataset = title.removeprefix("BLEU ") if title not in (_INSIDE, _BEYOND) else "extrapolate"
        cells = study.finished(DATASETS, {"dataset": dataset, "position": name})
        scores.append(column.entry(name, cells))
    if _JOINED in columns:
        axes = {"dataset": "interpolate", "position": name}
        rows = study.rows(DATASETS, f"BLEU{BY_SENTENCE}", axes, dataset=mean_of("test"))
        scores.append(study.entry(rows))
    [declared] = {
        is_declared(cell.config.position.scheme)
        for cell in study.cells(PROPERTIES, {"position": name})
    }
    return (
        *words(name),
        *scores,
        *words("yes" if declared else "no"),
        _field(study, _lowest(study, name), shifts.similarity if shifts else None, ".3f"),
        _field(study, _losses(study, name), shifts.loss_range if shifts else None, ".3f"),
        _property(study, name, "speed"),
        _property(study, name, "decoding_speed"),
        _property(study, name, "step_memory", f"length {MEMORY_LENGTH}"),
        study.entry(study.rows(PROPERTIES, "parameters", {"position": name}), "{:,.0f}".format),
        _exports(study, name),
    )


def _notes(study: Study) -> tuple[str, ...]:
    longest = max_length(study)
    return (
        f"inside, beyond: test sentences of Extrapolate of up to {longest} subwords, the longest in"
        " training, and of more",
        note(BASELINE),
        *([JOINED] if "interpolate" in study.settings(DATASETS, "dataset") else []),
        "shift invariant: by construction, as the library declares it",
        "similarity: of the encoder's states under two offsets, in the layer where it is lowest",
        "loss range: from the lowest to the highest validation loss under offsets, nats a token",
        f"speeds: {BASELINE}'s time over the position's own; decoding: {DECODED_LENGTH} tokens a"
        " sentence with a cache",
        f"memory: tensors of a training step on sentences of {MEMORY_LENGTH} subwords, over"
        f" {BASELINE}'s",
        "exports: torch.export, any batch and length, the same output",
    )


def _property(study: Study, name: str, metric: str, bucket: str | None = None) -> Entry:
    return study.entry(study.rows(PROPERTIES, metric, {"position": name}, bucket=bucket))


def _field(study: Study, rows: Sequence[Row], value: float | None, show: str) -> Entry:
    """Return a field for a value that was computed from measurements."""
    if value is None:
        return missing()
    return study.entry(rows).model_copy(update={"text": format(value, show), "value": value})


def _layers(study: Study, name: str) -> Iterator[list[Row]]:
    """Yield the similarities of each layer of the encoder; the embeddings are left out, to which
    absolute positions are added whatever the layers make of them."""
    for cell in study.cells(PROPERTIES, {"position": name})[:1]:
        for layer in range(1, cell.config.model.encoder_layers + 1):
            yield study.rows(
                PROPERTIES, "shift_similarity", {"position": name}, bucket=f"layer {layer}"
            )


def _lowest(study: Study, name: str) -> list[Row]:
    """Return the measurements of the layer that is least alike."""
    layers = [rows for rows in _layers(study, name) if rows]
    return min(layers, key=lambda rows: min(row.value for row in rows), default=[])


def _losses(study: Study, name: str) -> list[Row]:
    return [
        row
        for row in study.results.rows
        if (row.grid, row.metric) == (PROPERTIES, "shifted_loss") and row.axes["position"] == name
    ]


def _shifts(study: Study, name: str) -> Shifts | None:
    """Return how a position takes shifts; of several seeds, the one that takes them worst."""
    alike, losses = _lowest(study, name), _losses(study, name)
    [scheme] = {
        is_declared(cell.config.position.scheme)
        for cell in study.cells(PROPERTIES, {"position": name})
    }
    if not alike or not losses:
        return None
    by_seed: dict[int, list[float]] = {}
    for row in losses:
        by_seed.setdefault(row.seed, []).append(row.value)
    return Shifts(
        declared=scheme,
        similarity=min(row.value for row in alike),
        loss_range=max(max(values) - min(values) for values in by_seed.values()),
    )


def _reason(study: Study, name: str) -> str | None:
    """Return why a model cannot be exported, or `None`."""
    reasons = study.rows(PROPERTIES, "exports", {"position": name}, bucket="because")
    return next((row.signature for row in reasons), None)


def _exports(study: Study, name: str) -> Entry:
    tried = study.rows(PROPERTIES, "exports", {"position": name})
    if not tried:
        return missing()
    reason = _reason(study, name)
    return study.entry(tried, lambda mean: "yes" if mean == 1 else f"– ({reason})")


def _findings(
    study: Study,
    positions: Sequence[str],
    columns: Mapping[str, Column],
    shifts: Mapping[str, Shifts],
) -> list[Finding]:
    invariant = relative(study, PROPERTIES)
    claims = {
        "Kinds that are shift invariant translate sentences longer than any in training better than"
        f" {BASELINE}.": (invariant, _BEYOND),
        "Positions renumbered in training, shifted or randomized, translate sentences longer than"
        f" any in training better than {BASELINE}.": (renumbered(study, PROPERTIES), _BEYOND),
        f"Kinds that are shift invariant translate joined sentences better than {BASELINE}.": (
            invariant,
            _JOINED,
        ),
    }
    elsewhere = LATER.get(study.scale, "")
    found = [
        all_better(claim, columns[column].comparisons, names, elsewhere)
        for claim, (names, column) in claims.items()
        if column in columns
    ]
    reasons = {
        name: _reason(study, name)
        for name in positions
        if study.rows(PROPERTIES, "exports", {"position": name})
    }
    return [*found, as_declared(shifts, positions), all_export(reasons, positions)]


ITEM = Item("Every position on every dataset, and what it costs", (DATASETS, PROPERTIES), build)
