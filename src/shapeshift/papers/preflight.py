"""What runs need and what they will take, before any of them begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.corpora import fetch
from shapeshift.data.sources.download import Progress
from shapeshift.disk import free_bytes
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell
from shapeshift.lab.requirements import missing_requirements
from shapeshift.lab.run import prepared_directory
from shapeshift.papers.planning import CELLS
from shapeshift.training.estimate import assumed_length, count_parameters, disk_bytes
from shapeshift.training.precision import check_hardware

_COSTS_NOTHING = ("seed", "max_updates", "schedule", "checkpoint_every", "keep_checkpoints")


@dataclass(frozen=True)
class Runs:
    """The runs of a paper that differ by their seed alone.

    Attributes:
        cells: one for each seed.
        num_parameters: of one of them.
        update_s: seconds of an update of it here.
    """

    cells: Sequence[Cell]
    num_parameters: int
    update_s: float

    @property
    def name(self) -> str:
        """The grid, the first one, and the settings of its axes."""
        return f"{self.cells[0].grid} {'/'.join(self.cells[0].axes.values())}"

    @property
    def config(self) -> Config:
        """The first one's settings."""
        return self.cells[0].config

    @property
    def seconds(self) -> float:
        """Of the updates of one of them."""
        return self.config.training.max_updates * self.update_s

    @property
    def disk_bytes(self) -> int:
        """Of one of them: checkpoints and average."""
        return disk_bytes(self.config.training, self.num_parameters)


def measure_runs(
    cells: Iterable[Cell],
    measure: Callable[[Sequence[Config]], Iterable[tuple[int, float]]],
) -> list[Runs]:
    """Measure runs, each model once; nothing is fetched or trained."""
    groups: dict[str, list[Cell]] = {}
    for cell in {cell.key: cell for cell in cells}.values():
        same = cell.config.model_dump_json(exclude={"training": {"seed"}, "evaluation": True})
        groups.setdefault(same, []).append(cell)
    configs: dict[str, Config] = {}  # many runs differ in what costs nothing
    keys = []
    for group in groups.values():
        config = group[0].config
        model = (config.model, config.position.scheme)
        size = config.data.subwords.vocab_size, assumed_length(config.data)
        training = config.training.model_dump(exclude={*_COSTS_NOTHING})
        keys.append(f"{model} {training} {size}")
        configs.setdefault(keys[-1], config)
    measured = dict(zip(configs, measure([*configs.values()]), strict=True))
    return [Runs(group, *measured[key]) for group, key in zip(groups.values(), keys, strict=True)]


def missing(cells: Iterable[Cell], prepared_root: Path, *, hardware: bool) -> list[str]:
    """Return a line for each thing that runs need and that is not here, each once; see
    `lab.requirements`.
    """
    lines: list[str] = []
    for config in {cell.key: cell.config for cell in cells}.values():
        data = prepared_directory(config.data, prepared_root)
        lines += missing_requirements(config, data)
        if hardware:
            try:
                check_hardware(config.training)
            except ShapeshiftError as error:
                lines.append(str(error))
    return list(dict.fromkeys(lines))


def fetch_text(cells: Iterable[Cell], on_progress: Progress | None = None) -> None:
    """Fetch the text of runs, unless it is here; each corpus once.

    Raises:
        ShapeshiftError: some text cannot be fetched.
    """
    corpora = [cell.config.data.corpus for cell in cells]
    for corpus in {each.model_dump_json(): each for each in corpora}.values():
        fetch(corpus, on_progress)


def check_space(cells: Iterable[Cell], directory: Path) -> None:
    """Raise a `ShapeshiftError` if what runs leave on the disk will not fit."""
    configs = {cell.key: cell.config for cell in cells}
    needed = 0
    for key, config in configs.items():
        vocab_size = config.data.subwords.vocab_size
        num_parameters = count_parameters(config.model, config.position.scheme, vocab_size)
        needed += disk_bytes(config.training, num_parameters, directory / CELLS / key / "run")
    free = free_bytes(directory)
    if needed > free:
        raise ShapeshiftError(
            f"the {len(configs)} runs that are left need {needed:,} bytes on the disk, and {free:,}"
            " are free; make room, name another --directory, or choose fewer runs",
            path=directory,
        )
