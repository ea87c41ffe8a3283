"""Table 4 of the NHK study (Miyazaki et al. 2024): BLEU of models that were trained on slices of
the lengths, on the sentences of their own lengths."""

from __future__ import annotations

from statistics import fmean

from shapeshift.run.measures import BLEU
from shapeshift.study.by_length import length_bounds
from shapeshift.study.document import Content
from shapeshift.study.measured import Measured

CLAIM = "BLEU on the own lengths, middle slice minus short slice"
"""Name of the values for a claim."""

POSITIONS = ("less-feeding-cross-pe", "relative-cross-pe")
"""Those of the paper's table."""


def own_lengths(measured: Measured) -> Content:
    """Return the values of a claim: seed → the mean difference over the positions, of the seeds
    that all of them have. The table is one of the study's own."""
    found = [
        {name: _bleu(measured, position, name) for name in ("short", "middle")}
        for position in POSITIONS
    ]
    seeds = set.intersection(*({*own} for each in found for own in each.values()))
    leads = {
        seed: fmean(each["middle"][seed] - each["short"][seed] for each in found)
        for seed in sorted(seeds)
    }
    return Content(values={CLAIM: leads} if leads else {})


def _bleu(measured: Measured, position: str, lengths: str) -> dict[int, float]:
    """Return seed → BLEU of finished runs on the sentences of the lengths in training."""
    values = {}
    for planned in measured.finished({"position": position, "lengths": lengths}):
        bounds = length_bounds(planned.config, "inside")
        bleu = bounds and measured.score_at(planned, BLEU, "test", bounds)
        if bleu is not None:
            values[planned.seed] = bleu
    return values
