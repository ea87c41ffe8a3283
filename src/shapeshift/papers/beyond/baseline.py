"""Columns of BLEU in which every position is tested against one baseline."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.lab.significance import MARK
from shapeshift.papers.document import Entry
from shapeshift.papers.entries import missing, number
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import significant

BASELINE = "ape"


def bleu_by_position(
    study: Study,
    grid: str,
    axes: Mapping[str, str],
    lengths: tuple[int, int | None] | None = None,
) -> tuple[dict[str, Entry], set[str]]:
    """Return position → its test BLEU, the mean over the seeds that it has in common with the
    baseline, a dash where there are none; and which differ from the baseline, and are marked.

    Args:
        study: with the runs.
        grid: with the axis `position`.
        axes: of the runs to look at.
        lengths: see `Study.compare`.
    """
    positions = study.settings(grid, "position")
    parts = {
        name: study.compare(
            grid, {**axes, "position": name}, {**axes, "position": BASELINE}, lengths=lengths
        )
        for name in positions
        if name != BASELINE
    }
    tests = {name: part.comparison for name, part in parts.items() if part.comparison}
    if not tests:
        return {name: missing() for name in positions}, set()
    scores = {name: (test.score, test.p_values) for name, test in tests.items()}
    most = max(tests.values(), key=lambda test: len(test.p_values))
    scores[BASELINE] = most.baseline_score, most.p_values
    marked = significant(parts)
    entries = {name: missing() for name in positions}
    for name, (score, seeds) in scores.items():
        cells = study.finished(grid, {**axes, "position": name, "seed": [*seeds]})
        entry = number(score, cells=cells)
        mark = MARK if name in marked else ""
        entries[name] = entry.model_copy(update={"text": entry.text + mark})
    return entries, marked
