"""How fast every preset learns: Kiyono et al. (2021), Figures 8 and 9, for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from shapeshift.analysis.curves import RunCurve
from shapeshift.experiments.grid import Cell
from shapeshift.papers.beyond.judge import LATER
from shapeshift.papers.beyond.master import BASELINE, DATASETS, relative, renumbered
from shapeshift.papers.claims import NOT_MEASURED, finding
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape import curves
from shapeshift.papers.shape.curves import Runs
from shapeshift.papers.shape.shared import unanimous
from shapeshift.papers.study import Study


def build(study: Study) -> Content:
    """Draw perplexity against updates and against the clock, and judge who learns faster."""
    content = Content()
    found = {}
    for dataset in study.settings(DATASETS, "dataset"):
        runs = curves.read(study, DATASETS, dataset)
        found[dataset] = {name: _reached(runs, name) for name in _positions(study, dataset)}
        content.tables.append(_reaching(study, dataset, runs, found[dataset]))
        name = f"curves-{dataset}"
        content.tables.append(curves.table(name, dataset, runs))
        drawn = (
            curves.draw(name, dataset, runs, "updates", name),
            curves.draw(f"time-{dataset}", dataset, runs, "time", name),
        )
        content.figures.extend(each for each in drawn if each is not None)
    content.findings.extend(_findings(study, found))
    return content


def share_of_updates(run: RunCurve, baseline: RunCurve) -> float | None:
    """Return the share of the baseline's updates after which a run has validated at the perplexity
    that the baseline ends with, or below; `None` if it never has."""
    for update, perplexity in zip(run.updates, run.perplexity, strict=True):
        if perplexity <= baseline.perplexity[-1]:
            return update / baseline.updates[-1]
    return None


def _positions(study: Study, dataset: str) -> list[str]:
    cells = study.cells(DATASETS, {"dataset": dataset})
    return list(dict.fromkeys(cell.axes["position"] for cell in cells))


def _reached(runs: Runs, name: str) -> dict[int, float | None]:
    """Return seed → see `share_of_updates`, of the seeds that the baseline has, too."""
    own, base = runs.get(name, {}), runs.get(BASELINE, {})
    return {
        seed: share_of_updates(own[seed][1], base[seed][1])
        for seed in sorted(own.keys() & base.keys())
    }


def _reaching(
    study: Study, dataset: str, runs: Runs, reached: Mapping[str, Mapping[int, float | None]]
) -> DocumentTable:
    def mean_of(name: str, value: Callable[[RunCurve], float | None], show: str) -> Entry:
        own = runs.get(name, {})
        values = [value(run) for _, run in own.values()]
        known = [each for each in values if each is not None]
        if not known or len(known) < len(values):
            return missing()
        return number(fmean(known), show, [cell for cell, _ in own.values()])

    rows = []
    for name, shares in reached.items():
        cells = [each[seed][0] for seed in shares for each in (runs[BASELINE], runs[name])]
        rows.append(
            (
                *words(name),
                mean_of(name, lambda run: min(run.perplexity), ".3f"),
                mean_of(name, lambda run: run.perplexity[-1], ".3f"),
                _share(shares, cells),
                mean_of(name, lambda run: run.elapsed_s[-1] if run.elapsed_s else None, ",.0f"),
            )
        )
    return DocumentTable(
        name=f"reached-{dataset}",
        title=f"Validation perplexity, and when it is what {BASELINE} ends with,"
        f" {dataset.capitalize()}",
        header=(
            "position",
            "lowest perplexity",
            "last perplexity",
            f"updates ({BASELINE} = 1)",
            "time (s)",
        ),
        rows=tuple(rows),
        notes=(
            "updates: after what share of its own updates a run has validated at the perplexity"
            f" that {BASELINE} ends with, or below; a dash: in some seed never",
            study.spread(DATASETS, "mean"),
            "time: of all training, as the clock had it, whatever else the machine did",
        ),
    )


def _share(shares: Mapping[int, float | None], cells: list[Cell]) -> Entry:
    known = [share for share in shares.values() if share is not None]
    if not known or len(known) < len(shares):
        return missing()
    return number(fmean(known), ".2f", cells)


def _findings(
    study: Study, found: Mapping[str, Mapping[str, Mapping[int, float | None]]]
) -> list[Finding]:
    return [
        _finding(
            study,
            f"Kinds that are shift invariant need fewer updates than {BASELINE} for the perplexity"
            " that it ends with.",
            relative(study, DATASETS),
            found,
            lambda share: share is not None and share < 1,
        ),
        _finding(
            study,
            "Positions renumbered in training, shifted or randomized, need no fewer updates than"
            f" {BASELINE}.",
            renumbered(study, DATASETS),
            found,
            lambda share: share is None or share >= 1,
        ),
    ]


def _finding(
    study: Study,
    claim: str,
    systems: list[str],
    found: Mapping[str, Mapping[str, Mapping[int, float | None]]],
    agrees: Callable[[float | None], bool],
) -> Finding:
    votes: list[bool | None] = []
    told = []
    for dataset, shares in found.items():
        own = {name: shares[name] for name in systems if name in shares}
        for each in own.values():
            votes += [agrees(share) for share in each.values()] or [None]
        shown = ", ".join(
            f"{name} {'/'.join('never' if x is None else f'{x:.2f}' for x in each.values())}"
            for name, each in own.items()
            if each
        )
        told += [f"{dataset}: {shown}"] if shown else []
    return finding(
        study,
        claim=claim,
        verdict=unanimous(votes),
        measured=f"share of {BASELINE}'s updates, by seed: {'; '.join(told)}. No test: all systems"
        " and seeds have to agree"
        if told
        else NOT_MEASURED,
        paper="Figure 8: APE, RPE and SHAPE similar on all three datasets",
        elsewhere=LATER.get(study.scale, ""),
    )


ITEM = Item("How fast every preset learns", (DATASETS,), build)
