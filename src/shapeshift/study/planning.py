"""Which runs the items of a paper need, how far they are, and what is written of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import shapeshift
from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import free_bytes, make_directory, writing
from shapeshift._system.locks import locked
from shapeshift._system.own_modules import is_own
from shapeshift.config.files import PATHS, from_here
from shapeshift.data.corpora import fetch
from shapeshift.data.sources.download import Progress
from shapeshift.run.folder import prepared_directory
from shapeshift.run.measures import find_function, usable
from shapeshift.run.record import CellFolder
from shapeshift.run.requirements import missing_requirements
from shapeshift.study.document import FILE, ItemDocument
from shapeshift.study.grid import Cell, distinct
from shapeshift.study.item import Paper
from shapeshift.study.results import write_csv
from shapeshift.study.spec import PAPER_SCALE, TESTABLE
from shapeshift.study.study import Study
from shapeshift.study.write import write_item
from shapeshift.training.estimate import count_parameters, disk_bytes
from shapeshift.training.precision import check_hardware

CELLS = "cells"
"""Folder of the runs: one for all papers and scales, since a run is named by its settings."""

LOCK = ".lock"
"""Held while items are written: of two commands the second finds what the first has computed."""


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        paper: with what is to be made: of the items that were asked for, those that have cells.
        scale: of all runs.
        cells: that some item needs, grid after grid.
        overrides: settings for all cells.
        command: what was typed, for the records.
        label: of the results: the name of the grid, if it is not the items' own.
    """

    paper: Paper
    scale: str
    cells: Sequence[Cell]
    overrides: Sequence[str]
    command: str = ""
    label: str = ""

    def folder(self, directory: Path) -> Path:
        """Return where the items are written."""
        return directory / "-".join(filter(None, (self.scale, self.label))) / self.paper.name

    def check_folder(self, directory: Path) -> None:
        """Raise a `ShapeshiftError` if an item with numbers is there already that was made with
        other settings or from another study: it would be replaced."""
        wanted = self.paper.source(directory), _listed(self.overrides)
        for name in self.paper.items:
            path = self.folder(directory) / name
            if not (path / FILE).is_file():
                continue
            document = ItemDocument.load(path / FILE)
            made = document.citation, _listed(document.settings)
            if made != wanted and not document.is_empty:
                raise ShapeshiftError(
                    f"was made from {' with '.join(made)}, not from {' with '.join(wanted)}; name"
                    " another --directory, or remove this folder, and finished runs stay",
                    path=path,
                )

    def open_folder(self, directory: Path) -> Path:
        """Make the folder of the items, if need be, and return it.

        Raises:
            ShapeshiftError: it cannot be made; or see `check_folder`.
        """
        folder = self.folder(directory)
        with writing(folder):
            make_directory(folder)
        self.check_folder(directory)
        return folder

    @property
    def untested(self) -> str:
        """Say, before any run, how many claims the scale cannot test; empty if it can test all."""
        claims = [claim for item in self.paper.items.values() for claim in item.spec.claims]
        num_untested = sum(not claim.is_tested_at(self.scale) for claim in claims)
        if not num_untested:
            return ""
        return (
            f"scale {self.scale} tests {len(claims) - num_untested} of {len(claims)} claims; the"
            " others are shown as not tested at this scale (a paper's claim needs an effect of"
            f" {TESTABLE:g} BLEU or more in the paper, or scale {PAPER_SCALE})"
        )

    @cached_property
    def runs(self) -> list[Cell]:
        """The cells that have to be run, with the measures that can be taken here."""
        items = [item for item in self.paper.items.values() if item.spec.trained]
        return [
            replace(cell, steps=tuple(usable(cell.steps)[0]))
            for cell in self.cells
            if any(item.needs(cell) for item in items)
        ]

    def unfinished(self, directory: Path) -> list[Cell]:
        """Return the runs that are not finished."""
        return [
            cell
            for cell in self.runs
            if CellFolder(directory / CELLS / cell.key).missing(cell.steps, cell.config)
        ]

    def progress(self, directory: Path) -> dict[str, tuple[int, int]]:
        """Return item → how many of its runs are finished, and how many it needs: none where
        prepared data suffice."""
        unfinished = {(cell.grid, cell.key) for cell in self.unfinished(directory)}
        found = {}
        for name, item in self.paper.items.items():
            needed = {(x.grid, x.key) for x in self.runs if item.spec.trained and item.needs(x)}
            found[name] = len(needed - unfinished), len(needed)
        return found


def plan_items(
    paper: Paper,
    scale: str,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    command: str = "",
    label: str = "",
) -> Plan:
    """Resolve the cells that the items need; an item without any is left out.

    Args:
        paper: from `catalogue.find_items`.
        scale: a scale of its grids.
        overrides: settings for all cells, such as `data.corpus.root=PATH`.
        seeds: only cells with these; by default all of the grid's.
        command: what was typed, for the records.
        label: of the results, see `Plan`.

    Raises:
        ShapeshiftError: once for all modules of one's own that are missing, no such scale and
            settings that are wrong; nothing to run with what is asked for; or settings that leave
            an axis open, see `Item.check`.
    """
    items = paper.items
    every: list[Cell] = []
    problems = _missing_modules(paper)
    for grid in paper.grids.values():
        try:
            every += grid.cells(scale, overrides)
        except ShapeshiftError as error:
            problems.append(str(error))
    if problems:
        raise ShapeshiftError("; ".join(dict.fromkeys(problems)))
    needed = [cell for cell in every if any(item.needs(cell) for item in items.values())]
    known = {cell.seed for cell in needed}
    if unknown := set(seeds) - known:
        lacking, there = (", ".join(map(str, sorted(seeds))) for seeds in (unknown, known))
        raise ShapeshiftError(
            f"no run of {paper.name}:{','.join(items)} has the seed {lacking}; they have {there}"
        )
    cells = [cell for cell in needed if not seeds or cell.seed in seeds]
    chosen = {name: item for name, item in items.items() if any(map(item.needs, cells))}
    for item in chosen.values():
        item.check([*filter(item.needs, cells)])
    return Plan(replace(paper, items=chosen), scale, cells, overrides, command, label)


def _missing_modules(paper: Paper) -> list[str]:
    """Return what is wrong with each measure and analysis of one's own."""
    named = [(step, "measure", x.path) for x in paper.grids.values() for step in x.config.steps]
    named += [
        (x, "analysis", item.path) for item in paper.items.values() for x in item.spec.analyses
    ]
    problems = []
    for name, what, path in named:
        try:
            if is_own(name) and not name.startswith(f"{shapeshift.__name__}."):
                find_function(name, what, path)
        except ShapeshiftError as error:
            problems.append(str(error))
    return problems


def get_ready(
    cells: Sequence[Cell],
    directory: Path,
    prepared_root: Path,
    on_progress: Progress | None = None,
    *,
    hardware: bool = True,
) -> None:
    """Look for all that runs need before any of them begins, and fetch their text.

    Args:
        cells: the runs.
        directory: of all results.
        prepared_root: see `run.train.train`.
        on_progress: of the text that is fetched.
        hardware: whether they run on this machine.

    Raises:
        ShapeshiftError: once for all that is missing; what the runs leave on the disk will not fit;
            or some text cannot be fetched.
    """
    lines, needed = list[str](), 0
    configs = {cell.key: cell.config for cell in cells}
    for config in configs.values():
        lines += missing_requirements(config, prepared_directory(config.data, prepared_root))
        try:
            if hardware:
                check_hardware(config.training)
        except ShapeshiftError as error:
            lines.append(str(error))
    if lines:
        raise ShapeshiftError("; ".join(dict.fromkeys(lines)))
    for key, config in configs.items():
        vocab_size = config.data.subwords.vocab_size
        num_parameters = count_parameters(config.model, config.position.scheme, vocab_size)
        needed += disk_bytes(config.training, num_parameters, directory / CELLS / key / "run")
    if needed > (free := free_bytes(directory)):
        raise ShapeshiftError(
            f"the {len(configs)} runs that are left need {needed:,} bytes on the disk, and {free:,}"
            " are free; make room, name another --directory, or choose fewer runs",
            path=directory,
        )
    corpora = [config.data.corpus for config in configs.values()]
    for corpus in {each.model_dump_json(): each for each in corpora}.values():
        fetch(corpus, on_progress)


def write_items(
    plan: Plan, directory: Path, prepared_root: Path
) -> tuple[list[ItemDocument], dict[str, ShapeshiftError]]:
    """Write the items from what is finished; return them, and why those that cannot be made cannot.

    Items are written to `DIRECTORY/SCALE/PAPER/ITEM` (SCALE-GRID with another grid), each with
    all measurements of its runs as `results.csv`.

    Args:
        plan: the items and their cells.
        directory: of all results.
        prepared_root: see `run.train.train`.

    Raises:
        ShapeshiftError: see `Plan.open_folder`.
    """
    folder = plan.open_folder(directory)
    written: list[ItemDocument] = []
    failures: dict[str, ShapeshiftError] = {}
    with locked(directory / LOCK, wait=True):
        for name, item in plan.paper.items.items():
            study = Study([*filter(item.needs, plan.cells)], directory / CELLS, prepared_root)
            try:
                content, cells = item.build(study), study.cells()
                done = [x for x in cells if not item.spec.trained or study.is_finished(x)]
                document = ItemDocument(
                    paper=plan.paper.name,
                    item=name,
                    title=item.spec.title,
                    citation=plan.paper.source(directory),
                    scale=plan.scale,
                    command=plan.command,
                    version=__version__,
                    time=datetime.now(UTC).isoformat(timespec="seconds"),
                    tables=tuple(
                        table.with_overrides(plan.overrides)
                        for table in content.tables
                        if table.rows
                    ),
                    findings=tuple(content.findings),
                    configs={cell.key: cell.config.to_yaml() for cell in done},
                    unfinished=tuple(x.name for x in distinct(x for x in cells if x not in done)),
                    settings=tuple(plan.overrides),
                    seeds=tuple(sorted({x.seed for x in done})) if item.spec.trained else (),
                    label=plan.label,
                )
                if document.is_empty and (folder / name / FILE).is_file():
                    there = ItemDocument.load(folder / name / FILE)
                    if not there.is_empty:
                        raise ShapeshiftError(
                            "none of its runs is finished; what was made of others is kept: remove"
                            " the folder to replace it",
                            path=folder / name,
                        )
                if item.spec.trained:
                    write_csv(study.results, folder / name / "results.csv")
                write_item(document, folder / name)
                written.append(document)
            except ShapeshiftError as error:
                failures[name] = error
    return written, failures


def _listed(settings: Sequence[str]) -> str:
    """Return settings on one line, in one order, paths written in one way."""
    pairs = [setting.partition("=") for setting in settings]
    listed = [
        f"{key}={from_here(value) if tuple(key.split('.')) in PATHS else value}"
        for key, _, value in pairs
    ]
    return " ".join(sorted(listed)) or "the grid's own settings"
