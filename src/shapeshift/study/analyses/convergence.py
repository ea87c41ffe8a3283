"""How many updates training takes to converge: what Figure 8 of the SHAPE paper (Kiyono et al.
2021, Appendix E) shows, as a number."""

from __future__ import annotations

from math import exp

from shapeshift.study.document import Content, DocumentTable, number, words
from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Measured

NEAR = 1.05
"""Training has converged where validation perplexity is at most this times its last one."""


def updates(measured: Measured) -> Content:
    """Make a table of the updates that each run needs to converge, and for each dataset the values
    of a claim: seed → the largest number of updates divided by the smallest."""
    rows, values = [], dict[str, dict[int, float]]()
    for dataset in measured.settings("recipe"):
        needed = dict[int, list[int]]()
        for planned in measured.finished({"recipe": dataset}):
            update = _converged(measured, planned)
            needed.setdefault(planned.seed, []).append(update)
            name = words(dataset, planned.axes["position"], str(planned.seed))
            rows.append((*name, number(update, ",")))
        ratios = {seed: max(own) / min(own) for seed, own in needed.items() if len(own) > 1}
        if ratios:
            values[f"{dataset}: updates to converge, largest by smallest"] = ratios
    table = DocumentTable(
        name="convergence",
        title="Updates to converge",
        header=("recipe", "position", "seed", "updates"),
        rows=tuple(rows),
        notes=(f"the first whose validation perplexity is at most {NEAR} times the last one",),
    )
    return Content([table], values=values)


def _converged(measured: Measured, planned: PlannedRun) -> int:
    curve = [(line["update"], exp(line["valid_loss"])) for line in measured.validations(planned)]
    return next(int(update) for update, value in curve if value <= NEAR * curve[-1][1])
