"""Figure 3 and Table 4: training on slices of the lengths."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.data.config import LengthSlice
from shapeshift.evaluation.lengths import LengthBucket
from shapeshift.lab.analysis import nhk_lengths
from shapeshift.lab.analysis.nhk_lengths import SliceBleu, Trained
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import counted, missing, number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.nhk.shared import READINGS
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import finding

GRID = "nhk-figure3"

CROSS = ("less-feeding-cross-pe", "relative-cross-pe")
"""The paper's Table 4 has these: absolute and relative."""

# source lengths -> sentences, source tokens, BLEU absolute and relative
PUBLISHED: dict[str, tuple[int, int, float, float]] = {
    "tokens < 10": (8_052_523, 93_327_696, 34.27, 34.66),
    "40 < tokens < 60": (2_560_810, 122_431_120, 36.42, 36.46),
    "80 < tokens": (394_505, 44_813_104, 29.44, 25.97),
}

Bounds = tuple[int, int | None]
"""Of source lengths, `[from, to)`."""


def build(study: Study) -> Content:
    """Make the figure, its data and Table 4, and the paper's."""
    slices = {name: _bounds(study, name) for name in study.settings(GRID, "lengths")}
    data = _measured(study, slices)
    return Content(
        tables=[
            _by_length(study, slices),
            _sizes(study, slices, data),
            published(),
        ],
        figures=[] if data is None else [_figure(data)],
        findings=[_lengths_decide(study, slices), _unseen(study, slices)],
    )


def published() -> DocumentTable:
    """Return the paper's Table 4."""
    return DocumentTable(
        name="table4-paper",
        title="Sentences, tokens and BLEU of the slices in the paper (its Table 4)",
        origin="paper",
        header=("source lengths", "sentences", "source tokens", *(f"BLEU {x}" for x in CROSS)),
        rows=tuple(
            (
                *words(lengths),
                number(sentences, ","),
                number(tokens, ","),
                number(absolute),
                number(relative),
            )
            for lengths, (sentences, tokens, absolute, relative) in PUBLISHED.items()
        ),
        notes=(
            "the first is of under 20 tokens in the paper's text and Figure 3; the figure's numbers"
            " are not in the text",
        ),
    )


def _bounds(study: Study, name: str) -> Bounds | None:
    dataset = study.cells(GRID, {"lengths": name})[0].config.data.dataset
    return (dataset.min_length, dataset.max_length) if isinstance(dataset, LengthSlice) else None


def label(bounds: Bounds | None) -> str:
    """Return what people call a slice, and results the bucket of the same lengths."""
    if bounds is None:
        return "all"
    return LengthBucket(low=bounds[0], high=bounds[1], num_segments=0, score=None).label


def _measured(study: Study, slices: Mapping[str, Bounds | None]) -> SliceBleu | None:
    """Return BLEU by length of the systems that are finished for every slice that has any."""
    done = {name: _finished_systems(study, name) for name in slices}
    done = {name: systems for name, systems in done.items() if systems}
    shared = [
        system
        for system in study.settings(GRID, "system")
        if all(system in systems for systems in done.values())
    ]
    if not done or not shared:
        return None
    trained = {}
    for name in done:
        cells = {
            system: study.finished(GRID, {"lengths": name, "system": system}) for system in shared
        }
        trained[label(slices[name])] = Trained(
            slices[name],
            study.prepared(cells[shared[0]][0]).train,
            {system: [study.scores(cell) for cell in each] for system, each in cells.items()},
        )
    return nhk_lengths.compute(trained)


def _finished_systems(study: Study, name: str) -> set[str]:
    return {cell.axes["system"] for cell in study.finished(GRID, {"lengths": name})}


def _figure(data: SliceBleu) -> Drawn:
    systems = ", ".join(curve.name for curve in data.panels[0].bleu.curves)
    about = DocumentFigure(
        name="figure3",
        title="BLEU by source length of models trained on all lengths and on slices of them; bars"
        " are one standard deviation over seeds",
        table="figure3",
        alt=f"{len(data.panels)} panels, one for each set of training lengths"
        f" ({', '.join(panel.name for panel in data.panels)}), with lines of BLEU over source"
        f" length for {systems}; lengths that training never showed are shaded.",
    )
    return Drawn(about, nhk_lengths.plot(data))


def _by_length(study: Study, slices: Mapping[str, Bounds | None]) -> DocumentTable:
    edges = (0, *study.cells(GRID)[0].config.evaluation.length_buckets)
    buckets = [label(bounds) for bounds in zip(edges, (*edges[1:], None), strict=True)]
    rows = []
    for name, bounds in slices.items():
        for system in study.settings(GRID, "system"):
            scores = [_score(study, name, system, bucket) for bucket in buckets]
            rows.append((*words(label(bounds), system), *scores))
    return DocumentTable(
        name="figure3",
        title="BLEU by source length, by the lengths of the training pairs",
        header=("trained on", "system", *buckets),
        rows=tuple(rows),
        notes=(study.spread(GRID), "lengths in source subwords", READINGS),
    )


def _score(study: Study, name: str, system: str, bucket: str) -> Entry:
    axes = {"lengths": name, "system": system}
    return study.entry(
        study.rows(GRID, "BLEU", axes, dataset="test", bucket=bucket), "mean ± stdev"
    )


def _sizes(
    study: Study, slices: Mapping[str, Bounds | None], data: SliceBleu | None
) -> DocumentTable:
    sizes = {panel.name: panel for panel in data.panels} if data else {}
    systems = study.settings(GRID, "system")
    rows = []
    for name, bounds in slices.items():
        if bounds is None:
            continue
        panel = sizes.get(label(bounds))
        cells = study.finished(GRID, {"lengths": name})
        counts = (
            (missing(), missing())
            if panel is None
            else (
                counted(panel.num_pairs, study.prepared(cells[0]), cells[0]),
                counted(panel.num_source_tokens, study.prepared(cells[0]), cells[0]),
            )
        )
        scores = [_score(study, name, system, label(bounds)) for system in systems]
        rows.append((*words(label(bounds)), *counts, *scores))
    return DocumentTable(
        name="table4",
        title="Sentences, tokens and BLEU of the slices (the paper's Table 4)",
        header=("source lengths", "sentences", "source tokens", *(f"BLEU {x}" for x in systems)),
        rows=tuple(rows),
        notes=("BLEU on the test sentences of the same lengths as in training",),
    )


def _lengths_decide(study: Study, slices: Mapping[str, Bounds | None]) -> Finding:
    claim = ClaimSpec(
        claim="Training lengths decide: on the sentences of each slice, models trained on it are"
        " better than those trained on another slice, whatever the system.",
        rule="better",
        test={"lengths": "a slice"},
        against={"lengths": "another"},
        paper="Figure 3 (b) to (d): every curve falls off outside the training lengths",
    )
    limited = {name: bounds for name, bounds in slices.items() if bounds is not None}
    parts = {
        f"{system} on {label(bounds)}, trained on them against on {label(limited[other])}": (
            study.compare(
                GRID,
                {"system": system, "lengths": own},
                {"system": system, "lengths": other},
                lengths=bounds,
            )
        )
        for system in study.settings(GRID, "system")
        for own, bounds in limited.items()
        for other in limited
        if other != own
    }
    return finding(claim, parts, study.scale)


def _unseen(study: Study, slices: Mapping[str, Bounds | None]) -> Finding:
    absolute, relative = CROSS
    claim = ClaimSpec(
        claim="With CROSS-PE, relative positions are better than absolute ones on lengths that"
        " training never showed.",
        rule="better",
        test={"system": relative},
        against={"system": absolute},
        paper="said of Figure 3, without numbers",
    )
    parts = {
        f"trained on {label(bounds)}, tested on others": study.compare(
            GRID,
            {"system": relative, "lengths": name},
            {"system": absolute, "lengths": name},
            lengths=beyond,
        )
        for name, bounds in slices.items()
        if (beyond := _beyond(bounds)) is not None
    }
    return finding(claim, parts, study.scale)


def _beyond(bounds: Bounds | None) -> Bounds | None:
    """Return the lengths outside a slice; `None` where they are on both of its sides, which one
    test cannot take together."""
    match bounds:
        case (0, int(high)):
            return high, None
        case (int(low), None) if low:
            return 0, low
    return None


ITEM = Item("Figure 3 and Table 4: training on slices of the lengths", (GRID,), build)
