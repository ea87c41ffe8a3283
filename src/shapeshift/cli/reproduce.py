"""`shapeshift reproduce`: the tables and figures of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import PREPARED_ROOT, Overrides, PreparedRoot

if TYPE_CHECKING:
    from shapeshift.experiments.runner import Launcher
    from shapeshift.papers.reproduce import Made, Plan


def reproduce(
    target: Annotated[
        str, typer.Argument(metavar="PAPER[:ITEM,...]", help="Such as shape, or shape:table2.")
    ],
    overrides: Overrides = None,
    scale: Annotated[str, typer.Option(help="Of the runs: tiny, small or paper.")] = "tiny",
    directory: Annotated[
        Path, typer.Option(help="Folder of runs and results, shared by all papers and scales.")
    ] = Path("reproduced"),
    prepared: PreparedRoot = PREPARED_ROOT,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at a time, the cores divided among them.")
    ] = 1,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="0,1,...", help="One run on each of these GPUs.", show_default=False),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Only these seeds. [default: the grid's]", show_default=False),
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Train what is missing; --no-run writes what is there.")
    ] = True,
) -> None:
    """Run the grid behind a table or figure of a paper and write it, the paper's figures beside it.

    Finished runs are never run again, and one that was stopped goes on. Items are written to
    DIRECTORY/SCALE/PAPER/ITEM.
    """
    import shlex
    import sys

    from shapeshift.papers import reproduce as papers
    from shapeshift.papers.catalogue import find_items

    name, paper, items = find_items(target)
    command = shlex.join(["shapeshift", *sys.argv[1:]])
    plan = papers.plan(name, paper, items, scale, overrides or [], seed or [], command)
    failed = run and not _run(plan, directory, prepared, _launcher(jobs, gpus))
    made = papers.write(plan, directory, prepared_root=prepared)
    _show(made)
    if failed:
        raise typer.Exit(1)


def _launcher(jobs: int, gpus: str | None) -> Launcher:
    from shapeshift.experiments.launchers import Subprocesses

    if gpus is not None:
        return Subprocesses.on_gpus(gpus.split(","))
    return Subprocesses.on_cpu(jobs)


def _run(plan: Plan, directory: Path, prepared: Path, launcher: Launcher) -> bool:
    """Return whether all cells are finished."""
    from shapeshift.cli.grid_display import GridDisplay, show_failures
    from shapeshift.cli.progress import console
    from shapeshift.papers import reproduce as papers

    ok = True
    for name in plan.trained():
        cells = plan.cells[name]
        console.print(plan.grids[name].config.title, highlight=False, markup=False)
        with GridDisplay(cells) as display:
            report = papers.run(
                plan, name, directory, launcher, prepared_root=prepared, observer=display
            )
        show_failures(report)
        ok = ok and report.ok
    return ok


def _show(made: list[Made]) -> None:
    from shapeshift.cli.progress import results_console
    from shapeshift.papers.write import text_table

    out = results_console()
    for one in made:
        for table in one.document.tables:
            out.print(f"{one.document.title}: {table.title}", markup=False, highlight=False)
            out.print(text_table(table).rich())
        for finding in one.document.findings:
            out.print(f"{finding.verdict}: {finding.claim}", markup=False, highlight=False)
            out.print(f"  {finding.measured}", markup=False, highlight=False)
        out.print(str(one.directory), markup=False, highlight=False)
