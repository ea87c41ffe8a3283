"""Table 2: BLEU and speed of three position representations on three datasets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shapeshift.evaluation.metrics import BY_SENTENCE
from shapeshift.lab.measures import mean_of
from shapeshift.lab.significance import LEVEL, MARK, Comparison
from shapeshift.papers.claims import MARGIN, Tests, alike, better, finding, told, versus
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    JOINED,
    LEARNS_LATE,
    MISSING_SPEED,
    SHORT_RUNS,
    by_sentence,
    combinations,
    listed,
    max_offset,
    on_all,
    speed,
    speeds,
    without_rpe,
)
from shapeshift.papers.study import Study

Numbers = tuple[float | None, float | None, float | None]

# dataset -> position -> validation BLEU, test BLEU, speed
PUBLISHED: dict[str, dict[str, Numbers]] = {
    "vanilla": {
        "ape": (23.61, 30.46, 1.00),
        "rpe": (23.67, 30.54, 0.91),
        "shape": (23.63, 30.49, 1.01),
    },
    "extrapolate": {
        "ape": (22.18, 29.22, 1.00),
        "rpe": (22.97, 29.86, 0.91),
        "shape": (22.96, 29.80, 0.99),
        "shape-40": (23.12, 29.86, None),
    },
    "interpolate": {
        "ape": (31.40, 38.23, 1.00),
        "rpe": (None, None, None),
        "shape": (32.50, 39.09, 0.99),
    },
}

AS_FAST = 0.95
"""From this speed on a model counts as fast as APE; the paper's range is 0.99 to 1.01."""

_HEADER = ("dataset", "position", "valid BLEU", "test BLEU", "speed")


def build(study: Study) -> Content:
    """Make our table beside the paper's, and judge what the paper says of it."""
    found = study.comparisons(GRID, "position", BASELINE)
    tests = {dataset: found.get((dataset,), []) for dataset in PUBLISHED}
    ours = DocumentTable(
        name="table2",
        title="BLEU and training speed",
        header=_HEADER,
        rows=(
            *(_row(study, *names, tests[names[0]]) for names in combinations(study)),
            *(_row(study, *names, (), BY_SENTENCE) for names in by_sentence(study)),
        ),
        notes=(
            study.spread(GRID),
            f"{MARK} differs from ape: p < {LEVEL}, paired bootstrap for each seed, twice the mean",
            "speed: ape's time for a training step over the model's own, taken by turns",
            f"shape: K = {max_offset(study)}",
            JOINED,
            *without_rpe(study),
        ),
    )
    return Content(tables=[ours, published()], findings=_findings(study))


def published() -> DocumentTable:
    """Return the paper's table."""
    rows = [
        (*words(dataset, position), number(valid), number(test), number(rate))
        for dataset, systems in PUBLISHED.items()
        for position, (valid, test, rate) in systems.items()
    ]
    return DocumentTable(
        name="table2-paper",
        title="BLEU and training speed in the paper",
        origin="paper",
        header=_HEADER,
        rows=tuple(rows),
        notes=(
            "vanilla: means of five seeds",
            "shape-40: K = 40, chosen by validation BLEU",
            "interpolate, rpe: too slow for the authors to train",
        ),
    )


def judge_speed(found: Collection[float | None]) -> Verdict:
    """Return whether a position costs no speed: `AS_FAST` or more on every dataset."""
    return on_all(found, lambda value: value >= AS_FAST)


def _row(
    study: Study, dataset: str, position: str, tests: Sequence[Comparison], unit: str = ""
) -> tuple[Entry, ...]:
    axes = {"dataset": dataset, "position": position}
    differs = any(test.system == position and test.significant for test in tests)
    scores = [
        study.entry(
            study.rows(GRID, f"BLEU{unit}", axes, dataset=mean_of(split)),
            "mean ± stdev",
            MARK if split == "test" and differs else "",
        )
        for split in ("valid", "test")
    ]
    return (*words(dataset + unit, position), *scores, speed(study, axes))


def _findings(study: Study) -> list[Finding]:
    def test(dataset: str, position: str, baseline: str = BASELINE) -> Tests:
        pair = (position, baseline)
        label = f"{dataset}, {position} and {baseline}"
        return {label: versus(study, GRID, "position", pair, {"dataset": dataset})}

    return [
        _alike(
            study,
            "On Vanilla the three representations translate alike.",
            {**test("vanilla", "rpe"), **test("vanilla", "shape")},
            "test BLEU: APE 30.46, RPE 30.54, SHAPE 30.49 (five seeds, no test)",
        ),
        _ahead(
            study,
            "On Extrapolate RPE translates better than APE.",
            test("extrapolate", "rpe"),
            "test BLEU: RPE 29.86, APE 29.22",
            SHORT_RUNS,
        ),
        _ahead(
            study,
            "On Extrapolate SHAPE translates better than APE.",
            test("extrapolate", "shape"),
            "test BLEU: SHAPE 29.80, APE 29.22",
        ),
        _alike(
            study,
            "On Extrapolate SHAPE translates as well as RPE.",
            test("extrapolate", "shape", "rpe"),
            "test BLEU: SHAPE 29.80, RPE 29.86 (no test)",
        ),
        _ahead(
            study,
            "On Interpolate SHAPE translates better than APE.",
            test("interpolate", "shape"),
            "test BLEU: SHAPE 39.09, APE 38.23",
        ),
        _costs_nothing(study),
    ]


def _ahead(
    study: Study, claim: str, tests: Tests, paper: str, remark: str = LEARNS_LATE
) -> Finding:
    measured = f"test BLEU, {told(tests)}"
    return finding(study, claim, better(tests), measured, paper, remark)


def _alike(study: Study, claim: str, tests: Tests, paper: str) -> Finding:
    measured = f"test BLEU, {told(tests)}. Alike: means at most {MARGIN} BLEU apart"
    return finding(study, claim, alike(tests), measured, paper, LEARNS_LATE)


def _costs_nothing(study: Study) -> Finding:
    found = speeds(study, "shape")
    shown = listed(found, ".3f")
    return finding(
        study,
        claim="SHAPE trains as fast as APE.",
        verdict=judge_speed(found.values()),
        measured=f"speed over APE's: {shown}. As fast: {AS_FAST} or more on every dataset"
        if shown
        else MISSING_SPEED,
        paper="1.01 on Vanilla, 0.99 on Extrapolate and Interpolate",
        elsewhere="in models this narrow, adding a position to each embedding is a larger part of"
        " the work: see scale paper",
    )


ITEM = Item("Table 2: BLEU and speed", (GRID,), build)
