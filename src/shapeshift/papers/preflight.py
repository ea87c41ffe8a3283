"""What runs need and what they will take, before any of them begins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shapeshift.data.corpora import fetch
from shapeshift.data.sources.download import Progress
from shapeshift.disk import free_bytes
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell
from shapeshift.lab.requirements import missing_requirements
from shapeshift.lab.run import prepared_directory
from shapeshift.papers.planning import CELLS
from shapeshift.training.estimate import count_parameters, disk_bytes
from shapeshift.training.precision import check_hardware


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
