"""Table 7: BLEU of the baseline, trained in several toolkits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapeshift.lab.toolkits.measure import FAIRSEQ, OPENNMT
from shapeshift.papers.claims import LEARNED, MARGIN, NOT_MEASURED, finding
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import SHORT_RUNS
from shapeshift.papers.study import Study

GRID = "shape-table7"
OURS = "Shapeshift"
SPLITS = ("valid", "test")

SETS = tuple(f"newstest{year}" for year in range(2010, 2017))
PUBLISHED = {
    "fairseq": (24.24, 22.10, 22.40, 26.38, 27.11, 29.58, 34.34, 26.59),
    "OpenNMT-py": (24.22, 21.98, 22.20, 26.06, 26.95, 29.98, 34.46, 26.55),
}


def build(study: Study) -> Content:
    """Make our table beside the paper's; a toolkit that was not there has dashes."""
    sets = _sets(study)
    buckets = {OURS: None} | {each.toolkit.name: each.toolkit.name for each in _TOOLKITS}
    rows = []
    for name, bucket in buckets.items():
        fields = [
            study.entry(study.rows(GRID, "BLEU", dataset=each, bucket=bucket), "mean ± stdev")
            for each in sets
        ]
        rows.append((*words("ape", name), *fields, _mean(fields)))
    left_out = [line for each in _TOOLKITS if (line := each.missing())]
    ours = DocumentTable(
        name="table7",
        title="BLEU of the baseline in several toolkits",
        header=("model", "implementation", *(each.rpartition("/")[2] for each in sets), "average"),
        rows=tuple(rows),
        notes=(study.spread(GRID), *_NOTES, *left_out),
    )
    return Content(tables=[ours, published()], findings=[_finding(study, buckets, sets)])


def published() -> DocumentTable:
    """Return the paper's table."""
    rows = [
        (*words("ape", name), *(number(value) for value in values))
        for name, values in PUBLISHED.items()
    ]
    return DocumentTable(
        name="table7-paper",
        title="BLEU of the baseline in two toolkits in the paper",
        origin="paper",
        header=("model", "implementation", *SETS, "average"),
        rows=tuple(rows),
        notes=("means of five seeds",),
    )


def _sets(study: Study) -> list[str]:
    """Return what BLEU was measured on: the files of the two splits, or each as a whole."""
    found = list({row.dataset: None for row in study.rows(GRID, "BLEU") if row.dataset})
    files = [name for name in found if "/" in name]
    return files or [name for name in SPLITS if name in found] or list(SPLITS)


def _mean(fields: list[Entry]) -> Entry:
    values = [each.value for each in fields if each.value is not None]
    if not values or len(values) < len(fields):
        return number(None)
    rows = tuple(row for each in fields for row in each.rows)
    mean = sum(values) / len(values)
    return Entry(text=f"{mean:.2f}", value=mean, rows=rows)


def _finding(study: Study, buckets: Mapping[str, str | None], sets: Sequence[str]) -> Finding:
    """Judge the means over the seeds that all have, of those that were there at all."""
    own = {
        name: {row.seed for row in study.rows(GRID, "BLEU", dataset=sets[0], bucket=bucket)}
        for name, bucket in buckets.items()
    }
    there = {name: found for name, found in own.items() if found}
    shared = set.intersection(*there.values()) if there else set()
    known = {}
    for name in there if shared else ():
        axes = {"seed": sorted(shared)}
        fields = [
            study.entry(study.rows(GRID, "BLEU", axes, dataset=each, bucket=buckets[name]))
            for each in sets
        ]
        mean = _mean(fields).value
        if mean is not None:
            known[name] = mean
    shown = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
    return finding(
        study,
        "The baseline is as strong here as in other toolkits.",
        judge(known, len(shared)),
        f"average BLEU: {shown}" if shown else NOT_MEASURED,
        "fairseq 26.59, OpenNMT-py 26.55",
        "it takes another toolkit beside this one, and long runs, for short ones depend on how"
        f" weights begin, in which toolkits differ; {SHORT_RUNS}",
    )


def judge(means: Mapping[str, float], num_seeds: int) -> Verdict:
    """Judge whether ours is as strong: all within `MARGIN`. That it is not takes several seeds.

    Args:
        means: implementation → average BLEU.
        num_seeds: that they are of.
    """
    others = [value for name, value in means.items() if name != OURS]
    if OURS not in means or not others or max(means.values()) < LEARNED:
        return "cannot tell"
    if all(abs(means[OURS] - value) <= MARGIN for value in others):
        return "holds"
    return "does not hold" if num_seeds > 1 else "cannot tell"


_TOOLKITS = (FAIRSEQ, OPENNMT)
_NOTES = ("all are trained on the same prepared text and scored by sacreBLEU on detokenised text",)

ITEM = Item("Table 7: the baseline in several toolkits", (GRID,), build)
