"""Section 3.3: relative positions take 7% of the steps per second."""

from __future__ import annotations

from shapeshift.papers.claims import NOT_MEASURED, finding
from shapeshift.papers.document import DocumentTable, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "shaw-speed"

PUBLISHED = 0.93
"""Steps a second over those with absolute positions."""

MODEST = 0.85
"""What is still called modest: hardly more than twice the paper's loss."""

HEADER = ("model", "steps a second, absolute = 1")


def build(study: Study) -> Content:
    """Make our table beside the paper's number."""
    models = study.settings(GRID, "model")
    entries = {
        model: study.entry(study.rows(GRID, "speed", {"model": model}), "mean ± stdev")
        for model in models
    }
    ours = DocumentTable(
        name="speed",
        title="Training speed with relative positions",
        header=HEADER,
        rows=tuple((*words(model), entry) for model, entry in entries.items()),
        notes=(
            f"{study.spread(GRID)}; the median over steps, each taken beside one of the same model"
            " with absolute positions",
        ),
    )
    published = DocumentTable(
        name="speed-paper",
        title="Training speed with relative positions in the paper",
        origin="paper",
        header=HEADER,
        rows=((*words("on P100 GPUs"), number(PUBLISHED)),),
        notes=("the paper does not say of which model",),
    )
    found = finding(
        study,
        "Relative positions cost a modest share of the steps per second: at most"
        f" {1 - MODEST:.0%}.",
        judge([entry.value for entry in entries.values()]),
        "; ".join(
            f"{model} {NOT_MEASURED if entry.value is None else entry.text}"
            for model, entry in entries.items()
        )
        + ". The limit is ours, about twice the paper's loss",
        "a modest 7% decrease",
        "it depends on the machine: for models as small as these the steps of relative attention"
        " cost more than their arithmetic; the paper's are of width 512 and 1,024, on GPUs: see"
        " scale paper",
    )
    return Content(tables=[ours, published], findings=[found])


def judge(speeds: list[float | None]) -> Verdict:
    """Judge that no model is slower than `MODEST`; one that was not measured leaves it open."""
    measured = [speed for speed in speeds if speed is not None]
    if any(speed < MODEST for speed in measured):
        return "does not hold"
    return "holds" if measured and len(measured) == len(speeds) else "cannot tell"


ITEM = Item("Section 3.3: the cost of relative positions", (GRID,), build)
