"""Runs what the items of a paper need, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.tokenizers import check_usable
from shapeshift.experiments.cell_folder import CellFolder
from shapeshift.experiments.grid import Cell, Grid
from shapeshift.experiments.locks import locked
from shapeshift.experiments.measures import usable
from shapeshift.experiments.results import Results, Row
from shapeshift.experiments.run import DataProgress
from shapeshift.experiments.runner import Launcher, Report, run_cells
from shapeshift.experiments.status import GridObserver
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.item import Item, Paper
from shapeshift.papers.study import Study
from shapeshift.papers.write import write_item

CELLS = "cells"
"""Folder of the runs: one for all papers and scales, since a run is named by its settings."""

LOCK = ".lock"
"""Held while items are written: of two commands the second finds what the first has computed."""


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        name: of the paper.
        paper, items: what is to be made: of what was asked for, items that have cells.
        scale: of all runs.
        grids: name → the grid.
        cells: grid → those of its cells that some item needs.
        overrides: settings for all cells.
        command: what was typed, for the records.
    """

    name: str
    paper: Paper
    items: Mapping[str, Item]
    scale: str
    grids: Mapping[str, Grid]
    cells: Mapping[str, tuple[Cell, ...]]
    overrides: Sequence[str]
    command: str

    @cached_property
    def trained(self) -> dict[str, tuple[Cell, ...]]:
        """Grid → the cells that have to be run; grids that need not are left out."""
        items = [item for item in self.items.values() if item.trained]
        return {
            name: tuple(cell for cell in self.cells[name] if any(x.needs(cell) for x in items))
            for name in _grids(self.items)
        }

    def usable(self, grid: str) -> tuple[list[str], list[str]]:
        """Return the measures of a grid that can be taken here, and a line for each other one; see
        `experiments.measures.usable`."""
        return usable(self.grids[grid].config.steps)

    def finished(self, directory: Path) -> set[tuple[str, str]]:
        """Return the cells of these grids that are finished, by grid and key.

        Args:
            directory: of all results.
        """
        return {
            (name, cell.key)
            for name, cells in self.trained.items()
            for cell in cells
            if not CellFolder(directory / CELLS / cell.key).missing(
                self.usable(name)[0], cell.config
            )
        }

    def check_usable(self, finished: Collection[tuple[str, str]]) -> None:
        """Raise `ShapeshiftError` if a run that is yet to be made could not be scored here: before
        the first one begins, and not when days have passed.

        Args:
            finished: runs that are not asked about; see `finished`.
        """
        for tokenizer in dict.fromkeys(
            cell.config.bleu_tokenizer
            for name, cells in self.trained.items()
            for cell in cells
            if (name, cell.key) not in finished
        ):
            check_usable(tokenizer)


@dataclass(frozen=True)
class Standing:
    """How far the runs of an item are.

    Attributes:
        paper, item, title: which.
        num_cells: that it needs; none where prepared data suffice, `None` if its grids have none
            with this scale and these seeds.
        num_finished: of them.
    """

    paper: str
    item: str
    title: str
    num_cells: int | None
    num_finished: int = 0


@dataclass(frozen=True)
class Made:
    """An item that has been written."""

    name: str
    document: ItemDocument
    directory: Path


def plan(
    name: str,
    paper: Paper,
    items: Mapping[str, Item],
    scale: str,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    command: str = "",
) -> Plan:
    """Resolve the cells that the items need; an item without any is left out.

    Args:
        name, paper, items: from `catalogue.find_items`.
        scale: a scale of their grids.
        overrides: settings for all cells, such as `data.corpus.root=PATH`.
        seeds: only cells with these; by default all of the grid's.
        command: what was typed, for the records.

    Raises:
        ShapeshiftError: no such scale, or settings that are wrong.
    """
    names = dict.fromkeys(grid for item in items.values() for grid in item.grids)
    grids = {each: find_grid(each) for each in names}
    found = [cell for grid in grids.values() for cell in grid.cells(scale, overrides)]
    chosen = [cell for cell in found if not seeds or cell.seed in seeds]
    there = {
        key: item
        for key, item in items.items()
        if {cell.grid for cell in chosen if item.needs(cell)} == set(item.grids)
    }
    if not there:
        own = sorted({cell.seed for cell in found for item in items.values() if item.needs(cell)})
        raise ShapeshiftError(
            f"no run of {name}:{','.join(items)} has the seed {', '.join(map(str, seeds))}; they"
            f" have {', '.join(map(str, own))}"
        )
    needed = [cell for cell in chosen if any(item.needs(cell) for item in there.values())]
    cells = {
        each: tuple(cell for cell in needed if cell.grid == each)
        for each in dict.fromkeys(cell.grid for cell in needed)
    }
    return Plan(name, paper, there, scale, grids, cells, overrides, command)


def standing(
    name: str,
    paper: Paper,
    items: Mapping[str, Item],
    scale: str,
    directory: Path,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Standing]:
    """Return how far the runs of each item are; the arguments are those of `plan`.

    Args:
        name, paper, items, scale, overrides, seeds: see `plan`.
        directory: of all results.
    """
    scales = {grid: find_grid(grid).config.scales for item in items.values() for grid in item.grids}
    there = {
        key: item
        for key, item in items.items()
        if all(scale in scales[grid] for grid in item.grids)
    }
    resolved = plan(name, paper, there, scale, overrides, seeds)
    done = resolved.finished(directory)
    found = []
    for key, item in items.items():
        cells = (cell for grid in item.grids for cell in resolved.cells.get(grid, ()))
        wanted = {(cell.grid, cell.key) for cell in cells if item.trained and item.needs(cell)}
        count = len(wanted) if key in resolved.items else None
        found.append(Standing(name, key, item.title, count, len(wanted & done)))
    return found


def find_grid(name: str) -> Grid:
    """Return one of the grids that come with the package."""
    return Grid(Path(str(files("shapeshift"))) / "configs" / "grids" / f"{name}.yaml")


def run(
    plan: Plan,
    grid: str,
    directory: Path,
    launcher: Launcher,
    *,
    prepared_root: Path,
    observer: GridObserver | None = None,
) -> Report:
    """Train and measure what is not yet done of a grid; see `experiments.runner.run_cells`.

    Args:
        plan: that the grid is from.
        grid: its name.
        directory: of all results.
        launcher: where to run.
        prepared_root: see `experiments.run.train`.
        observer: told how far each cell is.
    """
    return run_cells(
        plan.trained[grid],
        plan.usable(grid)[0],
        directory / CELLS,
        launcher,
        prepared_root=prepared_root,
        observer=observer,
        command=plan.command,
    )


def write(
    plan: Plan,
    directory: Path,
    *,
    prepared_root: Path,
    on_prepare: DataProgress | None = None,
    on_failure: Callable[[str, ShapeshiftError], None] | None = None,
) -> list[Made]:
    """Write the items from what is finished, and all measurements in one table.

    Items are written to `DIRECTORY/SCALE/PAPER/ITEM`. The measurements of all that is recorded for
    any item of the paper at this scale and with these overrides, whatever its seed, are written to
    `DIRECTORY/SCALE/PAPER/results.csv`, and as Parquet where pyarrow is installed.

    Args:
        plan: the items and their cells.
        directory: of all results.
        prepared_root: see `experiments.run.train`.
        on_prepare: told of preparing data, if that is needed.
        on_failure: told of an item (or `results.csv`) that cannot be made, instead of an error; the
            others are made.

    Raises:
        ShapeshiftError: see `on_failure`.
    """
    folder = directory / plan.scale / plan.name
    made = []
    folder.mkdir(parents=True, exist_ok=True)
    with locked(directory / LOCK, wait=True):
        try:
            _write_results(plan, directory / CELLS, folder)
        except ShapeshiftError as error:
            if on_failure is None:
                raise
            on_failure("results.csv", error)
        for name, item in plan.items.items():
            study = Study(
                {grid: list(filter(item.needs, plan.cells[grid])) for grid in item.grids},
                {grid: plan.grids[grid].config.steps for grid in item.grids},
                directory / CELLS,
                prepared_root,
                on_prepare,
            )
            try:
                made.append(_write_item(plan, name, item, study, folder / name))
            except ShapeshiftError as error:
                if on_failure is None:
                    raise
                on_failure(name, error)
    return made


def _write_item(plan: Plan, name: str, item: Item, study: Study, folder: Path) -> Made:
    content = item.build(study)
    cells = [cell for grid in item.grids for cell in study.cells(grid)]
    done = [cell for cell in cells if not item.trained or study.is_finished(cell)]
    document = ItemDocument(
        paper=plan.name,
        item=name,
        title=item.title,
        citation=plan.paper.citation,
        scale=plan.scale,
        command=plan.command,
        version=__version__,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        tables=tuple(content.tables),
        figures=tuple(drawn.about for drawn in content.figures),
        findings=tuple(content.findings),
        measurements=study.measurements,
        configs={cell.key: cell.config.to_yaml() for cell in done},
        unfinished=tuple({cell.key: cell.name for cell in cells if cell not in done}.values()),
    )
    write_item(document, content.figures, folder)
    return Made(name, document, folder)


def _write_results(plan: Plan, root: Path, folder: Path) -> None:
    """Write what was measured for any item of the paper."""
    rows: list[Row] = []
    for name in _grids(plan.paper.items):
        grid = find_grid(name)
        if plan.scale in grid.config.scales:
            cells = grid.cells(plan.scale, plan.overrides)
            rows += Results.collect(cells, grid.config.steps, root).rows
    if not rows:
        return
    results = Results(tuple(rows))
    results.write_csv(folder / "results.csv")
    with suppress(ShapeshiftError):  # pyarrow is not installed; the CSV has it all
        results.write_parquet(folder / "results.parquet")


def _grids(items: Mapping[str, Item]) -> list[str]:
    """Return the grids whose cells the items need trained, each once."""
    needed = [grid for item in items.values() if item.trained for grid in item.grids]
    return list(dict.fromkeys(needed))
