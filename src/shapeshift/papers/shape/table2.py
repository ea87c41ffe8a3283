"""Table 2: BLEU and speed of three position representations on three datasets."""

from __future__ import annotations

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import LEVEL, MARK, Comparison
from shapeshift.papers.document import DocumentTable, Entry
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study, missing, number, words

GRID = "shape-table2"

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
HEADER = ("dataset", "position", "valid BLEU", "test BLEU", "speed")


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    comparisons = study.comparisons(GRID, "position", "ape")
    rows = []
    for dataset in study.settings(GRID, "dataset"):
        tests = {found.system: found for found in comparisons.get((dataset,), ())}
        for position in study.settings(GRID, "position"):
            if study.cells(GRID, {"dataset": dataset, "position": position}):
                rows.append(_row(study, dataset, position, tests.get(position)))
    ours = DocumentTable(
        name="table2",
        title="BLEU and training speed",
        header=HEADER,
        rows=tuple(rows),
        notes=(
            "mean ± standard deviation over seeds",
            f"{MARK} differs from ape: p < {LEVEL}, paired bootstrap for each seed, twice the mean",
            "speed: tokens a second over ape's",
        ),
    )
    return Content(tables=[ours, published()])


def published() -> DocumentTable:
    """Return the paper's table."""
    rows = [
        (*words(dataset, position), number(valid), number(test), number(speed))
        for dataset, systems in PUBLISHED.items()
        for position, (valid, test, speed) in systems.items()
    ]
    return DocumentTable(
        name="table2-paper",
        title="BLEU and training speed in the paper",
        origin="paper",
        header=HEADER,
        rows=tuple(rows),
        notes=("vanilla: means of five seeds", "shape-40: K = 40, chosen by validation BLEU"),
    )


def _row(study: Study, dataset: str, position: str, test: Comparison | None) -> tuple[Entry, ...]:
    axes = {"dataset": dataset, "position": position}
    scores = [
        study.entry(
            study.rows(GRID, "BLEU", axes, dataset=mean_of(split)),
            "mean ± stdev",
            MARK if split == "test" and test is not None and test.significant else "",
        )
        for split in ("valid", "test")
    ]
    return (*words(dataset, position), *scores, _speed(study, axes))


def _speed(study: Study, axes: dict[str, str]) -> Entry:
    """Return the speed over ape's on the same dataset."""
    own = study.rows(GRID, "tokens_per_s", axes)
    first = study.rows(GRID, "tokens_per_s", axes | {"position": "ape"})
    if not own or not first:
        return missing()
    base = study.entry(first).value or 1.0
    return study.entry(own, lambda mean: f"{mean / base:.2f}")


ITEM = Item("Table 2: BLEU and speed", (GRID,), build)
