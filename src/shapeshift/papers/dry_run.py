"""What all runs of a paper will take, before any of them begins: nothing is fetched or trained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.sources.origins import Origin, origins
from shapeshift.disk import free_bytes
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell
from shapeshift.lab.requirements import measure_run
from shapeshift.papers.planning import CELLS, Plan
from shapeshift.training.estimate import (
    Measured,
    assumed_length,
    count_parameters,
    disk_bytes,
)

_COSTS_NOTHING = ("seed", "max_updates", "schedule", "checkpoint_every", "keep_checkpoints")


@dataclass(frozen=True)
class Runs:
    """The runs of a paper that differ by their seed alone.

    Attributes:
        grid: that they are from, the first one.
        name: the settings of its axes.
        cells: one for each seed.
        num_parameters: of one of them.
        measured: a few of its steps here.
    """

    grid: str
    name: str
    cells: tuple[Cell, ...]
    num_parameters: int
    measured: Measured

    @property
    def config(self) -> Config:
        """The first one's settings."""
        return self.cells[0].config

    @property
    def seconds(self) -> float:
        """Of the updates of one of them."""
        return self.config.training.max_updates * self.measured.seconds_per_update

    @property
    def disk_bytes(self) -> int:
        """Of one of them: checkpoints and average."""
        return disk_bytes(self.config.training, self.num_parameters)


def measure_runs(plan: Plan, on_measure: Callable[[str], None] = lambda name: None) -> list[Runs]:
    """Measure all runs that the items of a plan need, each model once.

    Args:
        plan: from `papers.planning.plan_items`, which has checked every setting.
        on_measure: receives the name of each model that is measured.
    """
    cells = {cell.key: cell for cell in chain.from_iterable(plan.trained.values())}
    groups: dict[str, list[Cell]] = {}
    for cell in cells.values():
        same = cell.config.model_dump_json(exclude={"training": {"seed"}, "evaluation": True})
        groups.setdefault(same, []).append(cell)
    measured: dict[str, tuple[int, Measured]] = {}  # many runs differ in what costs nothing
    runs = []
    for group in groups.values():
        cell, config = group[0], group[0].config
        model = (config.model, config.position.scheme)
        size = config.data.subwords.vocab_size, assumed_length(config.data)
        training = config.training.model_dump(exclude={*_COSTS_NOTHING})
        key = f"{model} {training} {size}"
        name = "/".join(cell.axes.values())
        if key not in measured:
            on_measure(f"{cell.grid} {name}")
            measured[key] = measure_run(config)
        runs.append(Runs(cell.grid, name, tuple(group), *measured[key]))
    return runs


def find_origins(runs: Collection[Runs]) -> list[Origin]:
    """Return where the text of runs is or will come from, each part once."""
    found = (origin for each in runs for origin in origins(each.config.data.corpus))
    return list(dict.fromkeys(found))


def check_space(plan: Plan, directory: Path, finished: Collection[tuple[str, str]] = ()) -> None:
    """Raise a `ShapeshiftError` if what the runs of a plan leave on the disk will not fit.

    Args:
        plan: what is to be run.
        directory: of all results, which exists.
        finished: runs that are not asked about; see `Plan.finished`.
    """
    cells = {cell.key: cell for cell in plan.unfinished(finished)}
    needed = 0
    for key, cell in cells.items():
        config = cell.config
        vocab_size = config.data.subwords.vocab_size
        num_parameters = count_parameters(config.model, config.position.scheme, vocab_size)
        needed += disk_bytes(config.training, num_parameters, directory / CELLS / key / "run")
    free = free_bytes(directory)
    if needed > free:
        raise ShapeshiftError(
            f"the {len(cells)} runs that are left need {needed:,} bytes on the disk, and {free:,}"
            " are free; make room, name another --directory, or choose fewer runs with --seed or"
            " --only",
            path=directory,
        )
