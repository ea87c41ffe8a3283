"""Figure 8 and Figure 9: validation perplexity against updates and against training time."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from shapeshift.lab.analysis import curves
from shapeshift.lab.analysis.curves import Against, Curves, RunCurve, SystemCurves
from shapeshift.lab.grid import Cell
from shapeshift.papers.claims import NOT_MEASURED, finding
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    LEARNS_LATE,
    listed,
    on_all,
    positions,
    unanimous,
)
from shapeshift.papers.study import Study

SETTLED = 1.05
"""A run has converged once its perplexity stays within this factor of its last."""

ALIKE = 1.25
"""Two systems converge alike if neither needs more than this factor of the other's updates."""

Runs = dict[str, dict[int, tuple[Cell, RunCurve]]]
"""Position → seed → the run and its validations."""


def build_updates(study: Study) -> Content:
    """Make Figure 8: perplexity against updates; and judge how fast the systems converge."""
    content, found = _build(study, "figure8", "updates")
    content.findings.append(_converge_alike(study, found))
    return content


def build_time(study: Study) -> Content:
    """Make Figure 9: perplexity against the clock; and judge whether RPE takes longer."""
    content, found = _build(study, "figure9", "time")
    content.findings.append(_takes_longer(study, found))
    return content


def settled(run: RunCurve) -> int:
    """Return the first update from which perplexity stays within `SETTLED` of its last."""
    limit = SETTLED * run.perplexity[-1]
    first = run.updates[-1]
    for update, perplexity in zip(reversed(run.updates), reversed(run.perplexity), strict=True):
        if perplexity > limit:
            break
        first = update
    return first


def _has_settled(run: RunCurve) -> bool:
    """Return whether perplexity no longer fell between the last validations."""
    return settled(run) < run.updates[-1]


def judge_convergence(updates: Mapping[str, Mapping[str, float | None]]) -> Verdict:
    """Return whether all systems need about as many updates as APE, on every dataset.

    Args:
        updates: dataset → system → updates until it has settled; `None` if nobody knows.
    """
    ratios: list[float | None] = []
    for systems in updates.values():
        base = systems.get(BASELINE)
        ratios += [
            None if base is None or value is None else max(value / base, base / value)
            for name, value in systems.items()
            if name != BASELINE
        ]
    return on_all(ratios, lambda ratio: ratio <= ALIKE)


def read(study: Study, grid: str, dataset: str) -> Runs:
    """Return the runs of a dataset that are finished.

    Args:
        study: with the runs.
        grid: with the axes `dataset` and `position`.
        dataset: a setting of that axis.
    """
    found: Runs = {}
    for cell in study.finished(grid, {"dataset": dataset}):
        curve = curves.read_run(study.run(cell).directory)
        found.setdefault(cell.axes["position"], {})[cell.seed] = (cell, curve)
    return found


def draw(name: str, dataset: str, runs: Runs, against: Against, table: str) -> Drawn | None:
    """Draw perplexity against updates or time; `None` where no run has what it takes.

    Args:
        name: of the figure.
        dataset, runs: what is drawn.
        against: the axis.
        table: name of the table with the same data.
    """
    drawn = _timed(runs) if against == "time" else runs
    if not drawn:
        return None
    data = Curves(
        tuple(
            SystemCurves(system, tuple(run for _, run in each.values()))
            for system, each in drawn.items()
        )
    )
    axis = "updates" if against == "updates" else "training time"
    about = DocumentFigure(
        name=name,
        title=f"Validation perplexity against {axis}, {dataset.capitalize()}",
        table=table,
        alt=f"Validation perplexity on {dataset} falls with {axis}, a line for each run; at the"
        f" end {_ends(drawn)}.",
    )
    return Drawn(about, curves.plot(data, against=against))


def _build(study: Study, item: str, against: Against) -> tuple[Content, dict[str, Runs]]:
    content, found = Content(), {}
    for dataset in study.settings(GRID, "dataset"):
        runs = read(study, GRID, dataset)
        found[dataset] = runs
        name = f"{item}-{dataset}"
        content.tables.append(table(name, dataset, runs))
        drawn = draw(name, dataset, runs, against, name)
        content.figures.extend([] if drawn is None else [drawn])
    return content, found


def _timed(runs: Runs) -> Runs:
    """Leave out runs whose times are lost."""
    kept = {
        position: {seed: each for seed, each in own.items() if each[1].elapsed_s is not None}
        for position, own in runs.items()
    }
    return {position: own for position, own in kept.items() if own}


def table(name: str, dataset: str, runs: Runs) -> DocumentTable:
    """Return all validations of some runs.

    Args:
        name: of the table.
        dataset, runs: what it shows.
    """
    rows: list[tuple[Entry, ...]] = []
    for position, own in runs.items():
        for seed, (cell, run) in own.items():
            times = run.elapsed_s or (None,) * len(run.updates)
            for update, elapsed_s, perplexity in zip(
                run.updates, times, run.perplexity, strict=True
            ):
                rows.append(
                    (
                        *words(position, str(seed)),
                        Entry(text=f"{update:,}", value=update),
                        missing() if elapsed_s is None else number(elapsed_s, ",.0f", [cell]),
                        number(perplexity, ".3f", [cell]),
                    )
                )
    return DocumentTable(
        name=name,
        title=f"Validation perplexity during training, {dataset.capitalize()}",
        header=("position", "seed", "update", "time (s)", "perplexity"),
        rows=tuple(rows),
        notes=("time: as the clock had it, whatever else the machine did",),
    )


def _ends(runs: Runs) -> str:
    return ", ".join(
        f"{position} {fmean(run.perplexity[-1] for _, run in own.values()):.2f}"
        for position, own in runs.items()
    )


def _converge_alike(study: Study, found: Mapping[str, Runs]) -> Finding:
    falling = [
        dataset
        for dataset, runs in found.items()
        if not all(_has_settled(run) for own in runs.values() for _, run in own.values())
    ]
    shared = {  # of all systems: means of other seeds do not compare
        dataset: set.intersection(*map(set, runs.values())) if runs else set[int]()
        for dataset, runs in found.items()
    }
    updates: dict[str, dict[str, float | None]] = {
        dataset: {
            position: fmean(settled(runs[position][seed][1]) for seed in shared[dataset])
            if position in runs and shared[dataset] and dataset not in falling
            else None
            for position in positions(study, dataset)
        }
        for dataset, runs in found.items()
    }
    left_out = f" (still falling at the end: {', '.join(falling)})" if falling else ""
    told = "; ".join(
        f"{dataset}: {shown}"
        for dataset, systems in updates.items()
        if (shown := listed(systems, ",.0f"))
    )
    return finding(
        study,
        claim="In updates, all systems converge at a similar speed.",
        verdict=judge_convergence(updates),
        measured=f"updates until perplexity stays within {SETTLED - 1:.0%} of its last, means over"
        f" seeds: {told}{left_out}. Similar: at most {ALIKE} times as many as APE, or as few"
        if told
        else NOT_MEASURED + left_out,
        paper="Figure 8: similar on all three datasets",
        elsewhere=LEARNS_LATE,
    )


def _takes_longer(study: Study, found: Mapping[str, Runs]) -> Finding:
    votes: list[bool | None] = []
    told = []
    for dataset, runs in found.items():
        if "rpe" not in positions(study, dataset):
            continue
        ends = {
            position: {seed: run.elapsed_s[-1] for seed, (_, run) in own.items() if run.elapsed_s}
            for position, own in _timed(runs).items()
        }
        base, rpe = ends.get(BASELINE, {}), ends.get("rpe", {})
        shared = sorted(base.keys() & rpe.keys())
        votes += [rpe[seed] > base[seed] for seed in shared] or [None]
        told += [f"{dataset}, seed {s}: {rpe[s]:,.0f} and {base[s]:,.0f} s" for s in shared]
    verdict = unanimous(votes)
    return finding(
        study,
        claim="RPE takes longer to train than APE.",
        verdict=verdict,
        measured=f"RPE and APE, all runs have to agree: {'; '.join(told)}"
        if told
        else NOT_MEASURED,
        paper="107,089 s and 97,073 s on Vanilla, 111,246 s and 101,469 s on Extrapolate",
        elsewhere="times compare on a machine that does nothing else, and in runs longer than"
        " minutes (the paper's are of 27 hours and more: see scale paper); Table 6 has speeds,"
        " measured by turns",
    )


FIGURE8 = Item("Figure 8: validation perplexity against updates", (GRID,), build_updates)
FIGURE9 = Item("Figure 9: validation perplexity against training time", (GRID,), build_time)
