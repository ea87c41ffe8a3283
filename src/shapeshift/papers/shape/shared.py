"""What the items of the SHAPE paper share: its grid, pairs of runs, speeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shapeshift.data.config import Extrapolate
from shapeshift.experiments.grid import Cell
from shapeshift.papers.document import Entry, Verdict
from shapeshift.papers.study import Axes, Study

GRID = "shape-table2"
BASELINE = "ape"

LEARNS_LATE = (
    "in runs as short as these SHAPE learns word order last of the three; the paper's are 200,000"
    " updates of 112,000 tokens: see scale paper"
)
"""Where SHAPE falls short below the paper's scale."""

SHORT_RUNS = (
    "the paper's runs are 200,000 updates of 112,000 tokens on larger models: see scale paper"
)

MISSING_SPEED = "not measured: no run has the measure `speed`"


def combinations(study: Study) -> list[tuple[str, str]]:
    """Return (dataset, position) of all cells, in the grid's order."""
    return list({(cell.axes["dataset"], cell.axes["position"]): None for cell in study.cells(GRID)})


def positions(study: Study, dataset: str) -> list[str]:
    """Return the positions that a dataset has cells of, in the grid's order."""
    return [position for each, position in combinations(study) if each == dataset]


def paired(study: Study, dataset: str) -> dict[int, tuple[Cell, Cell]]:
    """Return seed → the finished runs of APE and of SHAPE, where both are there."""
    ape, shape = (
        {cell.seed: cell for cell in study.finished(GRID, {"dataset": dataset, "position": name})}
        for name in (BASELINE, "shape")
    )
    return {seed: (ape[seed], shape[seed]) for seed in sorted(ape.keys() & shape.keys())}


def max_offset(study: Study) -> int:
    """Return the K of the cells that are called `shape`."""
    cell = study.cells(GRID, {"position": "shape"})[0]
    offset: int = cell.config.position.indices["max_offset"]
    return offset


def longest_trained(study: Study) -> int | None:
    """Return the most subwords of a training sentence in Extrapolate."""
    for cell in study.cells(GRID, {"dataset": "extrapolate"}):
        if isinstance(cell.config.data.dataset, Extrapolate):
            return cell.config.data.dataset.max_length
    return None


def speed(study: Study, axes: Axes) -> Entry:
    """Return how fast training is, APE's speed being 1; see `experiments.speed`."""
    return study.entry(study.rows(GRID, "speed", axes))


def speeds(study: Study, position: str) -> Iterator[tuple[str, float]]:
    """Yield dataset and mean speed of a position, where it was measured."""
    for dataset in study.settings(GRID, "dataset"):
        found = speed(study, {"dataset": dataset, "position": position})
        if found.value is not None:
            yield dataset, found.value


def unanimous(votes: Iterable[bool]) -> Verdict:
    """Judge without a test: what all say; `cannot tell` where they disagree, or nobody is asked."""
    given = set(votes)
    if len(given) != 1:
        return "cannot tell"
    return "holds" if given.pop() else "does not hold"


def seeds(numbers: Iterable[int]) -> str:
    """Return `seed 1`, or `seeds 1, 2`."""
    found = sorted(set(numbers))
    return f"seed{'s' * (len(found) != 1)} {', '.join(map(str, found))}"
