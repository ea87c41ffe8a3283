"""Figure 3 and Figure 7: BLEU by source length, as a gain over APE and absolute.

As in the paper, validation and test sentences are taken together; tests of significance are on
test sentences alone.
"""

from __future__ import annotations

from functools import partial

from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.papers.by_length import add_lengths
from shapeshift.papers.document import Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import BASELINE, GRID, JOINED, longest_trained, positions
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import Part, finding

DATASETS = ("extrapolate", "interpolate")


def build(item: str, gain_over: str, study: Study) -> Content:
    """Make a figure and a table for each dataset; for the gains, judge lengths that training has
    not shown."""
    content = Content(findings=_beyond(study) if gain_over else [])
    for dataset in DATASETS:
        runs = {
            position: study.finished(GRID, {"dataset": dataset, "position": position})
            for position in positions(study, dataset)
        }
        add_lengths(
            content,
            study,
            runs,
            f"{item}-{dataset}",
            f"BLEU {'gain over APE ' if gain_over else ''}by source length in subwords,"
            f" {dataset.capitalize()}",
            splits=("valid", "test"),
            gain_over=gain_over,
            notes=(
                "validation and test sentences together",
                *([JOINED] if dataset == "interpolate" else []),
            ),
        )
    return content


def _beyond(study: Study) -> list[Finding]:
    """Compare RPE and SHAPE with APE on test sentences that are longer than those of training."""
    longest = longest_trained(study)
    findings = []
    for position in ("rpe", "shape"):
        claim = ClaimSpec(
            claim=f"On Extrapolate {position.upper()} translates sentences longer than those of"
            " training better than APE.",
            rule="better",
            test={"position": position},
            against={"position": BASELINE},
            paper="Figure 3a: RPE and SHAPE gain over APE beyond 50 subwords",
        )
        label = f"{position} against {BASELINE}, sources over {longest} subwords"
        part = _compare_longer(study, position, longest)
        findings.append(finding(claim, {label: part}, study.scale))
    return findings


def _compare_longer(study: Study, position: str, longest: int) -> Part:
    cells = study.finished(GRID, {"dataset": "extrapolate"})
    if cells and (study.prepared(cells[0]).test.source_lengths > longest).sum() < FEW_SEGMENTS:
        return Part({}, reason=f"fewer than {FEW_SEGMENTS} test sentences are longer")
    test, against = ({"dataset": "extrapolate", "position": name} for name in (position, BASELINE))
    return study.compare(GRID, test, against, lengths=(longest + 1, None))


_AXES = {"dataset": DATASETS}
FIGURE3 = Item(
    "Figure 3: BLEU gain over APE by source length",
    (GRID,),
    partial(build, "figure3", BASELINE),
    axes=_AXES,
)
FIGURE7 = Item(
    "Figure 7: BLEU by source length", (GRID,), partial(build, "figure7", ""), axes=_AXES
)
