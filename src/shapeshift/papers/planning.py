"""Which runs the items of a paper need, and how far they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import chain
from pathlib import Path

from shapeshift.disk import make_directory, writing
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell, Grid
from shapeshift.lab.measures import usable
from shapeshift.papers.document import FILE, ItemDocument
from shapeshift.papers.item import Item, Paper

CELLS = "cells"
"""Folder of the runs: one for all papers and scales, since a run is named by its settings."""

STUDIES = "studies"
"""Name of the plan of a study of one's own, and so of a folder next to those of the papers."""


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
        label: of the results, that other settings may have theirs.
        only: axis → settings; cells with others are not run, but shown where they are finished.
        substitute: the grid that stands for those of the items; `None` if they have their own.
    """

    name: str
    paper: Paper
    items: Mapping[str, Item]
    scale: str
    grids: Mapping[str, Grid]
    cells: Mapping[str, tuple[Cell, ...]]
    overrides: Sequence[str]
    command: str
    label: str = ""
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    substitute: Grid | None = None

    def folder(self, directory: Path) -> Path:
        """Return where the items are written.

        Args:
            directory: of all results.
        """
        return directory / "-".join(filter(None, (self.scale, self.label))) / self.name

    def results(self, directory: Path) -> Path:
        """Return the file of all measurements, one for all items of a paper, but for each study.

        Args:
            directory: of all results.
        """
        own = self.paper.items if self.name == STUDIES else ()
        return self.folder(directory).joinpath(*own, "results.csv")

    def open_folder(self, directory: Path) -> Path:
        """Make the folder of the items, if need be, and return it.

        Args:
            directory: of all results.

        Raises:
            ShapeshiftError: it cannot be made; or an item with numbers is there already that was
                made with other settings, of seeds that are not asked for, or from another study: it
                would be replaced.
        """
        folder = self.folder(directory)
        with writing(folder):
            make_directory(folder)
        for name, item in self.items.items():
            path = folder / name
            if not (path / FILE).is_file():
                continue
            document = ItemDocument.load(path / FILE)
            if document.is_empty:
                continue
            apart = "keep the two apart with --label NAME"
            now = self.paper.title, self.paper.citation
            if self.name == STUDIES and not {document.title, document.citation} & {*now}:
                raise ShapeshiftError(
                    f"is {document.title!r} ({document.citation}), another study whose file has the"
                    f" same name; {apart}, or rename the file",
                    path=path,
                )
            if document.settings is not None and set(document.settings) != set(self.overrides):
                raise ShapeshiftError(
                    f"was made with {_listed(document.settings)}, not with"
                    f" {_listed(self.overrides)}; {apart}",
                    path=path,
                )
            cells = chain.from_iterable(self.cells[grid] for grid in item.grids)
            seeds = {cell.seed for cell in cells if item.needs(cell)}
            if not seeds.issuperset(document.seeds or ()):
                raise ShapeshiftError(
                    f"was made of the seeds {_numbers(document.seeds or ())}, not of"
                    f" {_numbers(seeds)}; ask for all of them, or {apart}",
                    path=path,
                )
        return folder

    @cached_property
    def trained(self) -> dict[str, tuple[Cell, ...]]:
        """Grid → the cells that have to be run; grids that have none are left out."""
        items = [item for item in self.items.values() if item.trained]
        needed = {
            name: tuple(
                cell
                for cell in self.cells[name]
                if any(x.needs(cell) for x in items) and _has(cell, self.only)
            )
            for name in needed_grids(self.items)
        }
        return {name: cells for name, cells in needed.items() if cells}

    def usable(self, grid: str) -> tuple[list[str], list[str]]:
        """Return the measures of a grid that can be taken here, and a line for each other one; see
        `lab.measures.usable`."""
        return usable(self.grids[grid].config.steps)

    @property
    def runs(self) -> list[Cell]:
        """The cells of `trained`, grid after grid."""
        return [*chain.from_iterable(self.trained.values())]

    def unfinished(self, directory: Path) -> list[Cell]:
        """Return the runs that are not finished.

        Args:
            directory: of all results.
        """
        return [
            cell
            for cell in self.runs
            if CellFolder(directory / CELLS / cell.key).missing(
                self.usable(cell.grid)[0], cell.config
            )
        ]


def plan_items(
    name: str,
    paper: Paper,
    items: Mapping[str, Item],
    scale: str,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    command: str = "",
    label: str = "",
    only: Mapping[str, Collection[str]] | None = None,
    substitute: Grid | None = None,
) -> Plan:
    """Resolve the cells that the items need; an item without any is left out.

    Args:
        name, paper, items: from `catalogue.find_items`.
        scale: a scale of their grids.
        overrides: settings for all cells, such as `data.corpus.root=PATH`.
        seeds: only cells with these; by default all of the grid's.
        command: what was typed, for the records.
        label: of the results, see `Plan`.
        only: axis → settings: what to run of the cells; by default all.
        substitute: grid whose cells stand for those of the items' own grids.

    Raises:
        ShapeshiftError: no such scale, settings that are wrong, a label that cannot be in the
            name of a folder, a substitute with other axes, or nothing to run with what is asked
            for.
    """
    if label and not re.fullmatch(r"[\w-][\w.-]{0,99}", label):
        raise ShapeshiftError(
            f"the label {label!r} has to be at most 100 letters, digits, '.', '-' and '_', and not"
            " begin with a '.'"
        )
    grids = {each: substitute or find_grid(each) for each in _grids(items)}
    if substitute is not None:
        for each in grids:
            _check_axes(substitute, each)
    all_cells = _resolve(grids, scale, overrides)
    chosen, cells = _choose(items, all_cells, seeds)
    known = {
        cell.seed
        for cell in chain.from_iterable(all_cells.values())
        if any(item.needs(cell) for item in items.values())
    }
    unknown = set(seeds) - known or (set(seeds) if not chosen else set())
    if unknown:
        raise ShapeshiftError(
            f"no run of {name}:{','.join(items)} has the seed {_numbers(unknown)}; they"
            f" have {_numbers(known)}"
        )
    _check_only(only or {}, list(chain.from_iterable(cells.values())))
    return Plan(
        name, paper, chosen, scale, grids, cells, overrides, command, label, only or {}, substitute
    )


def item_progress(
    name: str,
    paper: Paper,
    items: Mapping[str, Item],
    scale: str,
    directory: Path,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> dict[str, tuple[int, int] | None]:
    """Return item → how many of its runs are finished, and how many it needs: none where prepared
    data suffice, `None` if its grids have no runs with this scale and these seeds.

    Args:
        name, paper, items, scale, overrides, seeds: see `plan_items`.
        directory: of all results.

    Raises:
        ShapeshiftError: a scale that none of them has, or settings that are wrong.
    """
    all_grids = {each: find_grid(each) for each in _grids(items)}
    grids = {each: grid for each, grid in all_grids.items() if scale in grid.config.scales}
    if not grids:
        known = dict.fromkeys(each for grid in all_grids.values() for each in grid.config.scales)
        raise ShapeshiftError(f"no item has the scale {scale!r} (they have {', '.join(known)})")
    chosen, cells = _choose(items, _resolve(grids, scale, overrides), seeds)
    plan = Plan(name, paper, chosen, scale, grids, cells, overrides, command="")
    unfinished = {(cell.grid, cell.key) for cell in plan.unfinished(directory)}
    progress: dict[str, tuple[int, int] | None] = dict.fromkeys(items)
    for key, item in chosen.items():
        needed = {(x.grid, x.key) for x in plan.runs if item.trained and item.needs(x)}
        progress[key] = len(needed - unfinished), len(needed)
    return progress


def needed_grids(items: Mapping[str, Item]) -> list[str]:
    """Return the grids whose cells the items need trained, each once."""
    return _grids({key: item for key, item in items.items() if item.trained})


def find_grid(name: str, relative_to: Path = Path()) -> Grid:
    """Return a grid that comes with the package, or the one in a file.

    Args:
        name: of a file in `configs/grids` without its suffix, or a path.
        relative_to: folder of a relative path.

    Raises:
        ShapeshiftError: there is no such grid or file, or something is wrong in it.
    """
    shipped = Path(str(files("shapeshift"))) / "configs" / "grids"
    known = sorted(path.stem for path in shipped.glob("*.yaml"))
    if name in known:
        return Grid(shipped / f"{name}.yaml")
    if not name.endswith((".yaml", ".yml")):
        raise ShapeshiftError(
            f"no grid {name!r}{nearest(name, known)} (known: {', '.join(known)}; or the path of a"
            " YAML file)"
        )
    return Grid(relative_to / name)


def _grids(items: Mapping[str, Item]) -> list[str]:
    return list(dict.fromkeys(grid for item in items.values() for grid in item.grids))


def _resolve(
    grids: Mapping[str, Grid], scale: str, overrides: Sequence[str]
) -> dict[str, list[Cell]]:
    """Return grid → its cells, under the name that the items have for the grid."""
    return {
        name: [replace(cell, grid=name) for cell in grid.cells(scale, overrides)]
        for name, grid in grids.items()
    }


def _check_axes(substitute: Grid, name: str) -> None:
    """Raise a `ShapeshiftError` if a grid cannot stand for the one of this name."""
    if substitute.name == name:
        return
    expected = set(find_grid(name).config.axes)
    if expected != set(substitute.config.axes):
        raise ShapeshiftError(
            f"has the axes {', '.join(substitute.config.axes)}, but what is made of {name} needs"
            f" {', '.join(sorted(expected))}",
            path=substitute.path,
        )


def _choose(
    items: Mapping[str, Item], all_cells: Mapping[str, Sequence[Cell]], seeds: Sequence[int]
) -> tuple[dict[str, Item], dict[str, tuple[Cell, ...]]]:
    """Return the items that have cells with these seeds (all if empty) in all of their grids, and
    grid → the cells that they need."""
    cells = [
        cell for cell in chain.from_iterable(all_cells.values()) if not seeds or cell.seed in seeds
    ]
    chosen = {
        key: item
        for key, item in items.items()
        if {cell.grid for cell in cells if item.needs(cell)} == set(item.grids)
    }
    needed: dict[str, list[Cell]] = {}
    for cell in cells:
        if any(item.needs(cell) for item in chosen.values()):
            needed.setdefault(cell.grid, []).append(cell)
    return chosen, {grid: tuple(own) for grid, own in needed.items()}


def _has(cell: Cell, only: Mapping[str, Collection[str]]) -> bool:
    return all(cell.axes.get(axis) in settings for axis, settings in only.items())


def _check_only(only: Mapping[str, Collection[str]], cells: Sequence[Cell]) -> None:
    """Raise a `ShapeshiftError` if no cell has an axis, a setting or all of them together."""
    known: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, setting in cell.axes.items():
            known.setdefault(axis, {})[setting] = None
    for axis, settings in only.items():
        if axis not in known:
            raise ShapeshiftError(
                f"no run has {axis!r}{nearest(axis, known)} (they have {', '.join(known)})"
            )
        for setting in settings:
            if setting not in known[axis]:
                raise ShapeshiftError(
                    f"no run has {axis}={setting}{nearest(setting, known[axis])} (they have"
                    f" {', '.join(known[axis])})"
                )
    if not any(_has(cell, only) for cell in cells):
        asked = " and ".join(f"{axis}={','.join(settings)}" for axis, settings in only.items())
        raise ShapeshiftError(f"no run has {asked}")


def _listed(settings: Sequence[str]) -> str:
    return " ".join(settings) or "the grid's own settings"


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
