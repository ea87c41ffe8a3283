"""What all runs of a paper will take, before any of them begins: nothing is fetched or trained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace
from itertools import chain
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.sources.origins import Origin, origins
from shapeshift.disk import free_bytes
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell
from shapeshift.papers.planning import CELLS, Plan
from shapeshift.training.estimate import Estimate, assumed_length, estimate, measure_speed
from shapeshift.training.gpus import GPUS, Gpu


@dataclass(frozen=True)
class Runs:
    """The runs of a paper that differ by their seed alone.

    Attributes:
        grid: that they are from, the first one.
        name: the settings of its axes.
        cells: one for each seed.
        estimate: of one of them.
        tflops_per_s: speed of training, 10^12 FLOP/s.
        gpu: that times are for; None for this machine.
    """

    grid: str
    name: str
    cells: tuple[Cell, ...]
    estimate: Estimate
    tflops_per_s: float
    gpu: Gpu | None

    @property
    def config(self) -> Config:
        """The first one's settings."""
        return self.cells[0].config

    @property
    def hours(self) -> float:
        """Hours of training of one of them on one GPU, or on this machine."""
        return self.estimate.hours(self.tflops_per_s)

    @property
    def fits(self) -> bool:
        """Whether a batch fits into the GPU's memory; of this machine's nothing is said."""
        return self.gpu is None or self.estimate.memory.total <= self.gpu.memory


@dataclass(frozen=True)
class DryRun:
    """All runs of a paper, each once, though several grids may have it."""

    runs: tuple[Runs, ...]

    @property
    def num_cells(self) -> int:
        """Runs."""
        return sum(len(runs.cells) for runs in self.runs)

    @property
    def total_flops(self) -> int:
        """Of all updates."""
        return sum(len(runs.cells) * runs.estimate.total_flops for runs in self.runs)

    @property
    def hours(self) -> float:
        """Hours of training, one run after the other."""
        return sum(len(runs.cells) * runs.hours for runs in self.runs)

    def hours_on(self, num_gpus: int, gpus_per_run: int = 1) -> float:
        """Return the hours until the last run is done, where each goes to the GPUs that are free
        first.

        Args:
            num_gpus: a multiple of `gpus_per_run`.
            gpus_per_run: that train one together.
        """
        free = [0.0] * (num_gpus // gpus_per_run)
        for runs in self.runs:
            for _ in runs.cells:
                heapreplace(free, free[0] + runs.hours / gpus_per_run)
        return max(free)

    @property
    def disk_bytes(self) -> int:
        """Checkpoints and averages that stay."""
        return sum(len(runs.cells) * runs.estimate.disk_bytes for runs in self.runs)

    @cached_property
    def origins(self) -> list[Origin]:
        """Where the text is or will come from, each part once."""
        found = (origin for runs in self.runs for origin in origins(runs.config.data.corpus))
        return list(dict.fromkeys(found))


def dry_run(
    plan: Plan, gpu: Gpu | None, on_measure: Callable[[str], None] = lambda name: None
) -> DryRun:
    """Estimate all runs that the items of a plan need.

    Args:
        plan: from `papers.planning.plan_items`, which has checked every setting.
        gpu: that times and the precision are for; None measures the speed of this machine.
        on_measure: told of each model that is measured.

    Raises:
        ShapeshiftError: a run cannot be estimated, or names a test set that there is none of.
    """
    cells: dict[str, Cell] = {}
    for cell in chain.from_iterable(plan.trained.values()):
        cells.setdefault(cell.key, cell)
    groups: dict[str, list[Cell]] = {}
    for cell in cells.values():
        groups.setdefault(_without_seed(cell.config), []).append(cell)
    made: dict[str, tuple[Estimate, float]] = {}  # many runs differ in what costs nothing
    return DryRun(tuple(_runs(tuple(group), gpu, made, on_measure) for group in groups.values()))


def check_space(plan: Plan, directory: Path, finished: Collection[tuple[str, str]] = ()) -> None:
    """Raise a `ShapeshiftError` if what the runs of a plan leave on the disk will not fit.

    Args:
        plan: what is to be run.
        directory: of all results, which exists.
        finished: runs that are not asked about; see `Plan.finished`.
    """
    keys = {cell.key for cell in plan.unfinished(finished)}
    try:
        groups = dry_run(plan, GPUS["a100"]).runs
    except ShapeshiftError:  # a run that cannot be estimated looks for room when it begins
        return
    needed = 0
    for runs in groups:
        for cell in (cell for cell in runs.cells if cell.key in keys):
            files = (directory / CELLS / cell.key / "run").rglob("*")
            there = sum(file.stat().st_size for file in files if file.is_file())
            needed += max(0, runs.estimate.disk_bytes - there)
    free = free_bytes(directory)
    if needed > free:
        raise ShapeshiftError(
            f"the {len(keys)} runs that are left need {needed:,} bytes on the disk, and {free:,}"
            " are free; make room, name another --directory, or choose fewer runs with --seed or"
            " --only",
            path=directory,
        )


def _without_seed(config: Config) -> str:
    return config.model_dump_json(exclude={"training": {"seed"}, "evaluation": True})


def _runs(
    cells: tuple[Cell, ...],
    gpu: Gpu | None,
    made: dict[str, tuple[Estimate, float]],
    on_measure: Callable[[str], None],
) -> Runs:
    cell = cells[0]
    config, training = cell.config, cell.config.training
    if training.precision == "auto" and gpu is not None and gpu.bf16 is None:
        training = training.model_copy(update={"precision": "fp32"})
    length = min(assumed_length(config.data), training.batch.max_tokens)
    scheme, vocab_size = config.position.scheme, config.data.subwords.vocab_size
    key = f"{config.model} {scheme} {training.model_copy(update={'seed': 0})} {vocab_size} {length}"
    name = "/".join(cell.axes.values())
    if key not in made:
        found = estimate(config.model, scheme, training, vocab_size, length)
        if gpu is None:
            on_measure(f"{cell.grid} {name}")
            speed = measure_speed(config.model, scheme, training, vocab_size, found)
        else:
            speed = gpu.speed(found.dtype)
        made[key] = (found, speed)
    return Runs(cell.grid, name, cells, *made[key], gpu)
