"""Runs what the items of a paper need, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.locks import locked
from shapeshift.lab.results import Row, collect, write_csv
from shapeshift.lab.runner import Launcher, Report, run_cells
from shapeshift.lab.status import GridObserver
from shapeshift.papers import planning
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.item import Item
from shapeshift.papers.study import Study
from shapeshift.papers.write import write_item

LOCK = ".lock"
"""Held while items are written: of two commands the second finds what the first has computed."""


@dataclass(frozen=True)
class WrittenItem:
    """An item that has been written; `lacks_text` as in `Content`."""

    name: str
    document: ItemDocument
    directory: Path
    lacks_text: bool


def run(
    plan: planning.Plan,
    directory: Path,
    launcher: Launcher,
    *,
    prepared_root: Path,
    observer: GridObserver | None = None,
) -> Report:
    """Train and measure what is not yet done of all grids; see `lab.runner.run_cells`.

    Args:
        plan: what is needed.
        directory: of all results.
        launcher: where to run.
        prepared_root: see `lab.train.train`.
        observer: receives how far each cell is.
    """
    return run_cells(
        plan.runs,
        {grid: plan.usable(grid)[0] for grid in plan.trained},
        directory / planning.CELLS,
        launcher,
        prepared_root=prepared_root,
        observer=observer,
        command=plan.command,
    )


def write(
    plan: planning.Plan,
    directory: Path,
    *,
    prepared_root: Path,
    on_failure: Callable[[str, ShapeshiftError], None] | None = None,
) -> list[WrittenItem]:
    """Write the items from what is finished, and all measurements in one table.

    Items are written to `DIRECTORY/SCALE/PAPER/ITEM` (SCALE-LABEL if there is a label). The
    measurements of all that is recorded for any item of the paper at this scale and with these
    overrides, whatever its seed, are written to `results.csv` next to them, those of a study in its
    folder.

    Args:
        plan: the items and their cells.
        directory: of all results.
        prepared_root: see `lab.train.train`.
        on_failure: receives what cannot be made (an item or `results.csv`), instead of an error;
            the others are made.

    Raises:
        ShapeshiftError: see `on_failure`.
    """
    folder = plan.open_folder(directory)
    written: list[WrittenItem] = []

    @contextmanager
    def reporting(name: str) -> Iterator[None]:
        try:
            yield
        except ShapeshiftError as error:
            if on_failure is None:
                raise
            on_failure(name, error)

    with locked(directory / LOCK, wait=True):
        with reporting("results.csv"):
            _write_results(plan, directory / planning.CELLS, plan.results(directory))
        for name, item in plan.items.items():
            study = Study(
                {grid: list(filter(item.needs, plan.cells[grid])) for grid in item.grids},
                {grid: plan.grids[grid].config.steps for grid in item.grids},
                directory / planning.CELLS,
                prepared_root,
            )
            with reporting(name):
                written.append(_write_item(plan, name, item, study, folder / name))
    return written


def _write_item(
    plan: planning.Plan, name: str, item: Item, study: Study, folder: Path
) -> WrittenItem:
    content = item.build(study)
    entries = (entry for table in content.tables for row in table.rows for entry in row)
    study.cite(key for entry in entries if not entry.data for key in entry.cells)
    cells = [cell for grid in item.grids for cell in study.cells(grid)]
    shown = {figure.about.table for figure in content.figures}
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
        tables=tuple(table for table in content.tables if table.rows or table.name in shown),
        figures=tuple(figure.about for figure in content.figures),
        findings=tuple(content.findings),
        measurements=study.measurements,
        configs={cell.key: cell.config.to_yaml() for cell in done},
        unfinished=tuple({cell.key: cell.name for cell in cells if cell not in done}.values()),
        settings=tuple(plan.overrides),
        seeds=tuple(sorted({cell.seed for cell in done})) if item.trained else (),
        label=plan.label,
    )
    write_item(document, content.figures, folder)
    return WrittenItem(name, document, folder, content.lacks_text)


def _write_results(plan: planning.Plan, root: Path, path: Path) -> None:
    """Write what was measured for any item of the paper, or for the study."""
    rows: list[Row] = []
    for name in planning.needed_grids(plan.items if plan.substitute else plan.paper.items):
        grid = plan.substitute or planning.find_grid(name)
        try:
            cells = grid.cells(plan.scale, plan.overrides)
        except ShapeshiftError:  # not at this scale, or not with these settings: it has no runs
            continue
        rows += collect(cells, grid.config.steps, root)
    if rows:
        write_csv(rows, path)
