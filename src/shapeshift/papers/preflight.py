"""What runs need and what they will take, before any of them begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def measure_runs(
    cells: Iterable[Cell],
    measure: Callable[[Sequence[Config]], Iterable[tuple[int, float]]],
) -> list[tuple[Cell, int, float]]:
    """Return each run with its number of parameters and the seconds of an update on this machine.
    Runs that cost the same are measured once; nothing is fetched or trained."""
    runs = [*{cell.key: cell for cell in cells}.values()]
    costs: list[str] = []
    configs: dict[str, Config] = {}
    for config in (cell.config for cell in runs):
        model = (config.model, config.position.scheme)
        size = config.data.subwords.vocab_size, assumed_length(config.data)
        training = config.training.model_dump(exclude={*_COSTS_NOTHING})
        costs.append(f"{model} {training} {size}")
        configs.setdefault(costs[-1], config)
    measured = dict(zip(configs, measure([*configs.values()]), strict=True))
    return [(cell, *measured[cost]) for cell, cost in zip(runs, costs, strict=True)]


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
