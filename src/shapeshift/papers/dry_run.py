"""What all runs of a paper will take, before any of them begins: nothing is fetched or trained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shapeshift.config import Config
from shapeshift.data.origins import Origin, origins
from shapeshift.experiments.grid import Cell
from shapeshift.papers.reproduce import Plan
from shapeshift.training.estimate import Estimate, assumed_length, estimate
from shapeshift.training.gpus import Gpu


@dataclass(frozen=True)
class Runs:
    """The runs of a paper that differ by their seed alone.

    Attributes:
        grid: that they are from, the first one.
        name: the settings of its axes.
        cells: one for each seed.
        estimate: of one of them.
        gpu: that times are for.
    """

    grid: str
    name: str
    cells: tuple[Cell, ...]
    estimate: Estimate
    gpu: Gpu

    @property
    def config(self) -> Config:
        """The first one's settings."""
        return self.cells[0].config

    @property
    def hours(self) -> float:
        """Hours of training of one of them on one GPU."""
        return self.estimate.hours(self.gpu.speed(self.estimate.dtype))

    @property
    def fits(self) -> bool:
        """Whether a batch fits into the GPU's memory."""
        return self.estimate.memory.total <= self.gpu.memory


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
    def gpu_hours(self) -> float:
        """Hours of training, on one GPU, one after the other."""
        return sum(len(runs.cells) * runs.hours for runs in self.runs)

    @property
    def disk_bytes(self) -> int:
        """Checkpoints and averages that stay."""
        return sum(len(runs.cells) * runs.estimate.disk_bytes for runs in self.runs)

    @cached_property
    def origins(self) -> list[Origin]:
        """Where the text is or will come from, each part once."""
        found = (origin for runs in self.runs for origin in origins(runs.config.data.corpus))
        return list(dict.fromkeys(found))


def dry_run(plan: Plan, gpu: Gpu) -> DryRun:
    """Estimate all runs that the items of a plan need.

    Args:
        plan: from `papers.reproduce.plan`, which has checked every setting.
        gpu: that times and the precision are for.

    Raises:
        ShapeshiftError: a run cannot be estimated, or names a test set that there is none of.
    """
    cells: dict[str, Cell] = {}
    for grid in plan.trained():
        for cell in plan.cells[grid]:
            cells.setdefault(cell.key, cell)
    groups: dict[str, list[Cell]] = {}
    for cell in cells.values():
        groups.setdefault(_without_seed(cell.config), []).append(cell)
    made: dict[str, Estimate] = {}  # many runs differ in what costs nothing, such as the languages
    return DryRun(tuple(_runs(tuple(group), gpu, made) for group in groups.values()))


def _without_seed(config: Config) -> str:
    return config.model_dump_json(exclude={"training": {"seed"}, "evaluation": True})


def _runs(cells: tuple[Cell, ...], gpu: Gpu, made: dict[str, Estimate]) -> Runs:
    cell = cells[0]
    config, training = cell.config, cell.config.training
    if training.precision == "auto" and gpu.bf16 is None:
        training = training.model_copy(update={"precision": "fp32"})
    length = min(assumed_length(config.data), training.batch.max_tokens)
    scheme, vocab_size = config.position.scheme, config.data.subwords.vocab_size
    key = f"{config.model} {scheme} {training.model_copy(update={'seed': 0})} {vocab_size} {length}"
    if key not in made:
        made[key] = estimate(config.model, scheme, training, vocab_size, length)
    return Runs(cell.grid, "/".join(cell.axes.values()), cells, made[key], gpu)
