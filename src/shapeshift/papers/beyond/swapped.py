"""The cost of a swapped order for every preset: Kiyono et al. (2021), Table 1, for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import LATER
from shapeshift.papers.beyond.master import BASELINE, DATASETS, relative, renumbered
from shapeshift.papers.claims import NOT_MEASURED, all_of, finding
from shapeshift.papers.document import Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape import table1
from shapeshift.papers.shape.shared import seeds
from shapeshift.papers.study import Study

_AXES = {"dataset": "interpolate"}


def build(study: Study) -> Content:
    """Make the table, and judge who loses less than the baseline."""
    positions = study.settings(DATASETS, "position")
    lost = {name: table1.drops(study, DATASETS, name) for name in positions}
    tests = {name: table1.more_lost(study, DATASETS, (BASELINE, name)) for name in positions}
    return Content(
        tables=[table1.table(study, "swapped", DATASETS, positions)],
        findings=[
            _finding(
                study, "kinds that are shift invariant", relative(study, DATASETS), lost, tests
            ),
            _finding(
                study,
                "positions renumbered in training, shifted or randomized",
                renumbered(study, DATASETS),
                lost,
                tests,
            ),
        ],
    )


def _finding(
    study: Study,
    who: str,
    systems: Sequence[str],
    lost: Mapping[str, Mapping[int, float]],
    tests: Mapping[str, Comparison | None],
) -> Finding:
    told = [
        f"{name} {fmean(lost[name].values()):.2f}{table1.beside(tests[name])}"
        for name in (BASELINE, *systems)
        if lost[name]
    ]
    return finding(
        study,
        claim=f"Moving the first sentence to the end costs APE at least {table1.FACTOR} times as"
        f" much BLEU as {who}.",
        verdict=all_of(table1.judge(lost[BASELINE], lost[name], tests[name]) for name in systems),
        measured=f"drop in BLEU: {', '.join(told)} ({seeds(lost[BASELINE])})."
        f" {table1.rule('systems and seeds', map(tests.get, systems))}"
        if told
        else NOT_MEASURED,
        paper="drop in BLEU: APE 8.07, SHAPE 1.45",
        elsewhere=LATER.get(study.scale, ""),
    )


ITEM = Item("The cost of a swapped order, for every preset", (DATASETS,), build, axes=_AXES)
