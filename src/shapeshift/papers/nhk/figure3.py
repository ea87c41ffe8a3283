"""Figure 3 and Table 4: training on slices of the lengths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shapeshift.evaluation.lengths import LengthBucket
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.length_bleu import Bounds
from shapeshift.lab.figures import draw_lines
from shapeshift.papers.by_length import trained_lengths
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import counted, missing, number, words
from shapeshift.papers.item import Content, Figure, Item
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


def build(study: Study) -> Content:
    """Make the figure, its data and Table 4, and the paper's."""
    slices = {
        name: trained_lengths(study.cells(GRID, {"lengths": name})[0].config)
        for name in study.settings(GRID, "lengths")
    }
    return Content(
        tables=[_by_length(study, slices), _sizes(study, slices), published()],
        figures=_figures(study, slices),
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


def label(bounds: Bounds | None) -> str:
    """Return what people call a slice, and results the bucket of the same lengths."""
    if bounds is None:
        return "all"
    return LengthBucket(low=bounds[0], high=bounds[1], num_segments=0, score=None).label


def _figures(study: Study, slices: Mapping[str, Bounds | None]) -> list[Figure]:
    """Draw a panel for each slice, with the systems that are finished for every slice that has
    any; lengths outside of the slice are shaded."""
    runs = {
        name: {
            system: cells
            for system in study.settings(GRID, "system")
            if (cells := study.finished(GRID, {"lengths": name, "system": system}))
        }
        for name in slices
    }
    runs = {name: systems for name, systems in runs.items() if systems}
    shared = [s for s in study.settings(GRID, "system") if all(s in own for own in runs.values())]
    if not runs or not shared:
        return []
    panels, titles = [], []
    for letter, (name, systems) in zip("abcdefgh", runs.items(), strict=False):
        scores = {each: [study.scores(cell) for cell in systems[each]] for each in shared}
        data = length_bleu.compute(scores, trained=slices[name])
        num_pairs = len(study.prepared(systems[shared[0]][0]).train)
        panels.append(data.panel(title=f"({letter}) {label(slices[name])}: {num_pairs:,} pairs"))
        titles.append(data.x_title)
    about = DocumentFigure(
        name="figure3",
        title="BLEU by source length of models trained on all lengths and on slices of them; bars"
        " are one standard deviation over seeds",
        table="figure3",
        alt=f"{len(panels)} panels, one for each set of training lengths"
        f" ({', '.join(label(slices[name]) for name in runs)}), with lines of BLEU over source"
        f" length for {', '.join(shared)}; lengths that training never showed are shaded.",
    )
    return [Figure(about, draw_lines(panels, max(titles, key=len)))]


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


def _sizes(study: Study, slices: Mapping[str, Bounds | None]) -> DocumentTable:
    systems = study.settings(GRID, "system")
    rows = []
    for name, bounds in slices.items():
        if bounds is None:
            continue
        counts: tuple[Entry, ...] = (missing(), missing())
        if cells := study.finished(GRID, {"lengths": name}):
            data = study.prepared(cells[0])
            num_tokens = int(data.train.source_lengths.sum(dtype=np.int64))
            counts = (
                counted(len(data.train), data, cells[0]),
                counted(num_tokens, data, cells[0]),
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
