"""Table 7: BLEU of the baseline, trained in several toolkits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.lab.toolkits.measure import FAIRSEQ, OPENNMT
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import Part, finding

GRID = "shape-table7"
OURS = "Shapeshift"
SPLITS = ("valid", "test")

SETS = tuple(f"newstest{year}" for year in range(2010, 2017))
PUBLISHED = {
    "fairseq": (24.24, 22.10, 22.40, 26.38, 27.11, 29.58, 34.34, 26.59),
    "OpenNMT-py": (24.22, 21.98, 22.20, 26.06, 26.95, 29.98, 34.46, 26.55),
}


def build(study: Study) -> Content:
    """Make our table and the paper's; a toolkit that was not there has dashes."""
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
    claim = ClaimSpec(
        claim="The baseline is as strong here as in other toolkits.",
        rule="equivalent",
        test={"implementation": OURS},
        against={"implementation": "another"},
        scales=("paper",),  # short runs depend on how weights begin, in which toolkits differ
        paper="fairseq 26.59, OpenNMT-py 26.55",
    )
    averages = {name: _averages(study, bucket, sets) for name, bucket in buckets.items()}
    ours = averages.pop(OURS)
    parts = {
        f"average BLEU, {OURS} minus {name}": Part(
            {seed: ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()},
            reason="no seed was trained in both",
        )
        for name, theirs in averages.items()
    }
    return finding(claim, parts, study.scale)


def _averages(study: Study, bucket: str | None, sets: Sequence[str]) -> dict[int, float]:
    """Return seed → the average over the sets, of seeds that have all of them."""
    values: dict[int, list[float]] = {}
    for dataset in sets:
        for row in study.rows(GRID, "BLEU", dataset=dataset, bucket=bucket):
            values.setdefault(row.seed, []).append(row.value)
    return {seed: fmean(each) for seed, each in values.items() if len(each) == len(sets)}


_TOOLKITS = (FAIRSEQ, OPENNMT)
_NOTES = ("all are trained on the same prepared text and scored by sacreBLEU on detokenised text",)

ITEM = Item("Table 7: the baseline in several toolkits", (GRID,), build)
