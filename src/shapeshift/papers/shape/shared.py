"""What the items of the SHAPE paper share: its grid, pairs of runs, speeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from shapeshift.data.config import Extrapolate
from shapeshift.lab.grid import Cell
from shapeshift.papers.claims import NOT_MEASURED
from shapeshift.papers.document import Entry, Verdict
from shapeshift.papers.study import Axes, Study

GRID = "shape-table2"
BASELINE = "ape"

PAIR = (BASELINE, "shape")
"""The positions that most items compare."""

JOINED = (
    "interpolate: BLEU of joined sentences, as the paper seems to report it, in which each"
    " ` <sep> ` counts as three correct tokens; by sentence: translation and reference split at"
    " ` <sep> `"
)
"""A note for tables with BLEU of Interpolate."""

LEARNS_LATE = (
    "the larger K, the later SHAPE learns word order (`beyond:learning`), and runs as short as"
    " these, on as little text, end before; the paper's are 200,000 updates of 112,000 tokens: see"
    " scale paper"
)
"""Where SHAPE falls short below the paper's scale."""

CARRIED = (
    "each layer's states carry the position added at the embedding along, and in 12,000 updates"
    " they hardly become more alike (`beyond:learning`); the paper's runs are 200,000 updates of"
    " 112,000 tokens: see scale paper"
)
"""Why a shift moves the states of SHAPE's encoder below the paper's scale."""

SHORT_RUNS = (
    "the paper's runs are 200,000 updates of 112,000 tokens, of more text and on larger models: see"
    " scale paper"
)

MISSING_SPEED = "not measured: no run has the measure `speed`"


def combinations(study: Study) -> list[tuple[str, str]]:
    """Return (dataset, position) of all cells, in the grid's order."""
    return list({(cell.axes["dataset"], cell.axes["position"]): None for cell in study.cells(GRID)})


def by_sentence(study: Study) -> list[tuple[str, str]]:
    """Return those of `combinations` whose texts are joined, and so also scored by sentence."""
    return [each for each in combinations(study) if each[0] == "interpolate"]


def positions(study: Study, dataset: str) -> list[str]:
    """Return the positions that a dataset has cells of, in the grid's order."""
    return [position for each, position in combinations(study) if each == dataset]


def paired(study: Study, dataset: str) -> dict[int, tuple[Cell, Cell]]:
    """Return seed → the finished runs of APE and of SHAPE, where both are there."""
    ape, shape = (
        {cell.seed: cell for cell in study.finished(GRID, {"dataset": dataset, "position": name})}
        for name in PAIR
    )
    return {seed: (ape[seed], shape[seed]) for seed in sorted(ape.keys() & shape.keys())}


def without_rpe(study: Study) -> tuple[str, ...]:
    """Return a note where RPE on Interpolate, which the paper could not train, is not run either
    (§3.3 and the dashes of Tables 2 and 5)."""
    if "rpe" in positions(study, "interpolate"):
        return ()
    return (
        "interpolate, rpe: not run at this scale, as the paper has none (too slow for the authors"
        " to train); ours is in `beyond:master`",
    )


def max_offset(study: Study) -> int:
    """Return the K of the cells that are called `shape`."""
    cell = study.cells(GRID, {"position": "shape"})[0]
    offset: int = cell.config.position.indices["max_offset"]
    return offset


def longest_trained(study: Study) -> int:
    """Return the most subwords of a training sentence in Extrapolate."""
    [longest] = {
        cell.config.data.dataset.max_length
        for cell in study.cells(GRID, {"dataset": "extrapolate"})
        if isinstance(cell.config.data.dataset, Extrapolate)
    }
    return longest


def speed(study: Study, axes: Axes) -> Entry:
    """Return how fast training is, APE's speed being 1; see `lab.speed`."""
    return study.entry(study.rows(GRID, "speed", axes))


def speeds(study: Study, position: str) -> dict[str, float | None]:
    """Return dataset → mean speed of a position, for all datasets that it has runs of; `None` where
    it was not measured."""
    return {
        dataset: speed(study, {"dataset": dataset, "position": position}).value
        for dataset in study.settings(GRID, "dataset")
        if position in positions(study, dataset)
    }


def listed(values: Mapping[str, float | None], show: str = ".2f") -> str:
    """Return names with their values, as `vanilla 0.97, extrapolate not measured`; nothing where
    nothing was measured."""
    if not any(value is not None for value in values.values()):
        return ""
    return ", ".join(
        f"{name} {NOT_MEASURED if value is None else format(value, show)}"
        for name, value in values.items()
    )


def on_all(values: Collection[float | None], agrees: Callable[[float], bool]) -> Verdict:
    """Judge that something is so everywhere: one value that disagrees suffices to say no, one that
    is missing leaves it open."""
    known = [value for value in values if value is not None]
    if not all(map(agrees, known)):
        return "does not hold"
    return "holds" if known and len(known) == len(values) else "cannot tell"


def unanimous(votes: Iterable[bool | None]) -> Verdict:
    """Judge without a test: what all say; `cannot tell` where they disagree, one is missing
    (`None`), or nobody is asked."""
    given = set(votes)
    if len(given) != 1 or None in given:
        return "cannot tell"
    return "holds" if given.pop() else "does not hold"


def seeds(numbers: Iterable[int]) -> str:
    """Return `seed 1`, or `seeds 1, 2`."""
    found = sorted(set(numbers))
    return f"seed{'s' * (len(found) != 1)} {', '.join(map(str, found))}"
