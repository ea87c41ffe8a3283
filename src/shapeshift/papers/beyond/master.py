"""The master table: what every preset of the library gives and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapeshift.evaluation.metrics import BY_SENTENCE
from shapeshift.lab.figures import Point, draw_points
from shapeshift.lab.measures import mean_of
from shapeshift.lab.properties import DECODED_LENGTH, MEMORY_LENGTH
from shapeshift.lab.results import Row
from shapeshift.papers.beyond.baseline import BASELINE, bleu_by_position
from shapeshift.papers.by_length import add_lengths
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.shape.shared import JOINED, longest_trained
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import mark_note
from shapeshift.positions import KINDS, Scheme

DATASETS, PROPERTIES = "beyond-datasets", "beyond-properties"

_INSIDE, _BEYOND = "BLEU inside", "BLEU beyond"
_WHOLE = ("vanilla", "interpolate")
_JOINED = "BLEU interpolate"
_SENTENCES = _JOINED + BY_SENTENCE
_TRADEOFF = "BLEU beyond the training lengths against training speed"


def build(study: Study) -> Content:
    """Make the table, BLEU by source length, and quality against speed."""
    positions = study.settings(PROPERTIES, "position")
    columns, differing = _columns(study)
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
        rows=tuple(_row(study, name, columns) for name in positions),
        notes=_notes(study),
    )
    content = Content(tables=[master])
    runs = {
        name: study.finished(DATASETS, {"dataset": "extrapolate", "position": name})
        for name in positions
    }
    add_lengths(content, study, runs, "lengths", "BLEU by source length, Extrapolate")
    beyond = columns[_BEYOND]
    speed = {name: _property(study, name, "speed") for name in beyond}
    points = [
        Point(name, x, y, marked=name in differing)
        for name in beyond
        if (x := speed[name].value) is not None and (y := beyond[name].value) is not None
    ]
    if points:
        rows = [(*words(point.name), speed[point.name], beyond[point.name]) for point in points]
        content.tables.append(
            DocumentTable(
                name="tradeoff",
                title=_TRADEOFF,
                header=("position", "training speed", _BEYOND),
                rows=tuple(rows),
            )
        )
        content.figures.append(_tradeoff(points))
    return content


def _tradeoff(points: Sequence[Point]) -> Figure:
    """Draw quality beyond the training lengths against speed."""
    best = max(points, key=lambda point: point.y)
    about = DocumentFigure(
        name="tradeoff",
        title=_TRADEOFF,
        table="tradeoff",
        alt=f"A point for each of {len(points)} positions; {best.name} is highest, at"
        f" {best.y:.1f} BLEU and {best.x:.2f} of {BASELINE}'s speed.",
    )
    drawing = draw_points(
        points,
        f"training speed ({BASELINE} = 1)",
        "BLEU beyond the training lengths",
        marked=f"differs from {BASELINE} significantly",
        baseline=BASELINE,
    )
    return Figure(about, drawing)


def is_declared(scheme: Scheme) -> bool:
    """Return whether the library declares a scheme shift invariant: all its kinds are."""
    return all(KINDS[part.kind].build.shift_invariant for part in scheme.parts)


def _columns(study: Study) -> tuple[dict[str, dict[str, Entry]], set[str]]:
    """Return title → position → BLEU, and the positions that differ from the baseline beyond the
    training lengths."""
    longest = longest_trained(study, DATASETS)
    ranges = {_INSIDE: (0, longest + 1), _BEYOND: (longest + 1, None)}
    extrapolate = {"dataset": "extrapolate"}
    found = {
        title: bleu_by_position(study, DATASETS, extrapolate, lengths)
        for title, lengths in ranges.items()
    }
    there = study.settings(DATASETS, "dataset")
    for dataset in (name for name in _WHOLE if name in there):
        found[f"BLEU {dataset}"] = bleu_by_position(study, DATASETS, {"dataset": dataset})
    return {title: entries for title, (entries, _) in found.items()}, found[_BEYOND][1]


def _row(study: Study, name: str, columns: Mapping[str, Mapping[str, Entry]]) -> tuple[Entry, ...]:
    scores = [column.get(name, missing()) for column in columns.values()]
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
        _similarity(study, name),
        _loss_range(study, name),
        _property(study, name, "speed"),
        _property(study, name, "decoding_speed"),
        _property(study, name, "step_memory", f"length {MEMORY_LENGTH}"),
        study.entry(study.rows(PROPERTIES, "parameters", {"position": name}), "{:,.0f}".format),
        _exports(study, name),
    )


def _notes(study: Study) -> tuple[str, ...]:
    longest = longest_trained(study, DATASETS)
    return (
        f"inside, beyond: test sentences of Extrapolate of up to {longest} subwords, the longest in"
        " training, and of more",
        mark_note(BASELINE),
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


def _computed(study: Study, rows: Sequence[Row], value: float) -> Entry:
    """Return a field for a value that was computed from measurements."""
    return study.entry(rows).model_copy(update={"text": f"{value:.3f}", "value": value})


def _similarity(study: Study, name: str) -> Entry:
    """Return the similarity in the layer and seed where it is lowest. The embeddings are left out:
    absolute positions are added to them, whatever the layers make of it."""
    layers: dict[str, list[Row]] = {}
    for row in study.results.rows:
        if _is(row, "shift_similarity", name) and row.bucket != "layer 0":
            layers.setdefault(row.bucket or "", []).append(row)
    if not layers:
        return missing()
    lowest = min(layers.values(), key=lambda rows: min(row.value for row in rows))
    return _computed(study, lowest, min(row.value for row in lowest))


def _loss_range(study: Study, name: str) -> Entry:
    """Return the range of losses under offsets, in the seed where it is widest."""
    by_seed: dict[int, list[Row]] = {}
    for row in study.results.rows:
        if _is(row, "shifted_loss", name):
            by_seed.setdefault(row.seed, []).append(row)
    if not by_seed:
        return missing()
    ranges = [
        max(row.value for row in rows) - min(row.value for row in rows) for rows in by_seed.values()
    ]
    return _computed(study, [row for rows in by_seed.values() for row in rows], max(ranges))


def _is(row: Row, metric: str, position: str) -> bool:
    return (row.grid, row.metric) == (PROPERTIES, metric) and row.axes["position"] == position


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


ITEM = Item("Every position on every dataset, and what it costs", (DATASETS, PROPERTIES), build)
