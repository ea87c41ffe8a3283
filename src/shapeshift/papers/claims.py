"""The findings of an item: which runs or values each claim is about, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from shapeshift.evaluation.scores import FEW_SEGMENTS
from shapeshift.lab.measures import mean_of
from shapeshift.papers.by_length import bounds_label, length_bounds
from shapeshift.papers.document import Finding
from shapeshift.papers.metrics import METRICS
from shapeshift.papers.spec import ALL, ClaimSpec, ItemSpec
from shapeshift.papers.study import Settings, Study
from shapeshift.papers.verdicts import Part, finding

Values = Mapping[str, Mapping[int, float]]
"""What analyses computed: name → seed → value."""


def judge_claims(spec: ItemSpec, study: Study, values: Values) -> list[Finding]:
    """Return a finding for each claim of an item; `values` are those of its analyses."""
    findings = []
    for claim in spec.claims:
        if claim.metric in values:
            parts = {claim.metric: Part(values[claim.metric])}
        elif claim.rule == "threshold":
            parts = _measured(claim, study)
        else:
            parts = _compared(claim, study)
        findings.append(finding(claim, parts, study.scale))
    return findings


def _compared(claim: ClaimSpec, study: Study) -> dict[str, Part]:
    """Compare runs on the translations that they kept."""
    parts = {}
    for label, test, against in _pairs(claim, study):
        bounds = None
        if claim.minus:
            label += f", BLEU lost from {claim.split} to {claim.minus}"
        if claim.lengths:
            config = study.cells(test)[0].config
            bounds = length_bounds(config, claim.lengths)
            if bounds is None:
                continue
            label += f", source lengths {bounds_label(bounds)}"
            cells = study.finished(test)
            if cells and sum(study.of_length(cells[:1], claim.split, bounds)) < FEW_SEGMENTS:
                parts[label] = Part({}, reason=f"fewer than {FEW_SEGMENTS} sentences")
                continue
        parts[label] = study.compare(test, against, claim.split, lengths=bounds, minus=claim.minus)
    return parts


def _pairs(claim: ClaimSpec, study: Study) -> Iterator[tuple[str, Settings, Settings]]:
    """Yield label, tested settings and settings compared with, of what has runs at this scale."""
    pairs = [*([(claim.test, claim.against)] if claim.against else []), *claim.pairs]
    for place in _combinations(claim, study):
        for test, against in pairs:
            sides = place | test, place | test | against
            if sides[0] != sides[1] and all(study.cells(side) for side in sides):
                names = [" ".join(each.values()) for each in (test, against)]
                differing = [f"{names[0] or 'other'} against {names[1]}"]
                yield " ".join([*place.values(), *differing]), *sides


def _measured(claim: ClaimSpec, study: Study) -> dict[str, Part]:
    """Return a measurement of the runs themselves."""
    parts = {}
    metric = METRICS.get(claim.metric)
    dataset = mean_of(claim.split) if metric and metric.is_score else None
    for place in _combinations(claim, study):
        rows = study.rows(claim.metric, place | claim.test, dataset=dataset)
        values = {row.seed: row.value for row in rows}
        label = " ".join([claim.metric, *place.values()])
        parts[label] = Part(values, reason="" if values else "not measured")
    return parts


def _combinations(claim: ClaimSpec, study: Study) -> list[Settings]:
    """Return the combinations of `each`."""
    settings = [
        study.settings(axis) if wanted == (ALL,) else wanted for axis, wanted in claim.each.items()
    ]
    return [dict(zip(claim.each, values, strict=True)) for values in product(*settings)]
