"""Writes the items of a paper from the runs that are finished."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell
from shapeshift.lab.locks import locked
from shapeshift.lab.results import write_csv
from shapeshift.papers import planning
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.study import Study
from shapeshift.papers.write import write_item

LOCK = ".lock"
"""Held while items are written: of two commands the second finds what the first has computed."""


def write(
    plan: planning.Plan,
    directory: Path,
    *,
    prepared_root: Path,
) -> tuple[list[ItemDocument], dict[str, ShapeshiftError]]:
    """Write the items from what is finished; return them, and why those that cannot be made cannot.

    Items are written to `DIRECTORY/SCALE/PAPER/ITEM` (SCALE-GRID with another grid), each with
    all measurements of its runs as `results.csv`.

    Args:
        plan: the items and their cells.
        directory: of all results.
        prepared_root: see `lab.train.train`.

    Raises:
        ShapeshiftError: see `Plan.open_folder`.
    """
    folder = plan.open_folder(directory)
    written: list[ItemDocument] = []
    failures: dict[str, ShapeshiftError] = {}
    with locked(directory / LOCK, wait=True):
        for name, item in plan.items.items():
            cells = [*filter(item.needs, plan.cells)]
            study = Study(cells, directory / planning.CELLS, prepared_root)
            try:
                written.append(_write_item(plan, name, cells, study, folder / name))
            except ShapeshiftError as error:
                failures[name] = error
    return written, failures


def _write_item(
    plan: planning.Plan, name: str, cells: Sequence[Cell], study: Study, folder: Path
) -> ItemDocument:
    item = plan.items[name]
    content = item.build(study)
    done = [cell for cell in cells if not item.spec.trained or study.is_finished(cell)]
    document = ItemDocument(
        paper=plan.paper.name,
        item=name,
        title=item.spec.title,
        citation=plan.paper.citation,
        scale=plan.scale,
        command=plan.command,
        version=__version__,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        tables=tuple(table for table in content.tables if table.rows),
        findings=tuple(content.findings),
        configs={cell.key: cell.config.to_yaml() for cell in done},
        unfinished=tuple({cell.key: cell.name for cell in cells if cell not in done}.values()),
        settings=tuple(plan.overrides),
        seeds=tuple(sorted({cell.seed for cell in done})) if item.spec.trained else (),
        label=plan.label,
    )
    if item.spec.trained:
        write_csv(study.results, folder / "results.csv")
    write_item(document, folder)
    return document
