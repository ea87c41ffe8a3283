"""`shapeshift reproduce`: the tables and figures of a paper."""

from __future__ import annotations

import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import (
    PREPARED_ROOT,
    DryRunOfGrid,
    Jobs,
    Label,
    Overrides,
    PreparedRoot,
    usage_error,
)
from shapeshift.cli.output import notice, results_console, show, show_table
from shapeshift.errors import ShapeshiftError

if TYPE_CHECKING:
    from shapeshift.lab.grid import Grid
    from shapeshift.lab.runner import Launcher, Report
    from shapeshift.papers.planning import Plan
    from shapeshift.papers.reproduce import Made

STUDIES = "studies"
"""Folder of studies of one's own, next to those of the papers."""

SLURM_JOBS = 100
"""Jobs at a time, unless --jobs says otherwise."""


def reproduce(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER[:ITEM,...] or FILE.yaml",
            help="Such as shape, or shape:table2,figure3; or a study of your own.",
        ),
    ] = None,
    overrides: Overrides = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Of the runs: tiny, small or paper, or one of a grid of your own. [default: tiny,"
            " or the only one there is]",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="NAME or FILE.yaml",
            help="Make the items of the runs of this grid instead of their own; it has to have the"
            " same axes.",
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option(help="Folder of runs and results, shared by all papers and scales.")
    ] = Path("reproduced"),
    prepared: PreparedRoot = PREPARED_ROOT,
    jobs: Jobs = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="0,1,...",
            help="Runs on these GPUs, one on each; see --gpus-per-run.",
        ),
    ] = None,
    gpus_per_run: Annotated[
        int, typer.Option(min=1, help="GPUs that train one run together, on one machine.")
    ] = 1,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Each run a job of a SLURM cluster, with this parameter of submitit, such as"
            " slurm_partition=gpu or timeout_min=600; may be given several times.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Only these seeds. [default: the grid's]"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=NAME,...",
            help="Run only cells with these settings of an axis, such as position=ape,shape; may"
            " be given several times. What others have finished is shown, too.",
        ),
    ] = None,
    label: Label = "",
    run: Annotated[
        bool, typer.Option(help="Train what is missing; --no-run writes what is there.")
    ] = True,
    dry_run: DryRunOfGrid = False,
    show_list: Annotated[
        bool,
        typer.Option("--list", help="Show papers, items and how many of their runs are finished."),
    ] = False,
) -> None:
    """Reproduce a table or figure of a paper, or run your own study.

    Runs the grid behind it, and writes our table or figure next to the paper's. Finished runs are
    never run again, and one that was stopped goes on: Ctrl-C and SIGTERM end the runs at work,
    which save, and exit with 130 or 143. The same command may run several times at once, on
    several machines that share the folder. A run that fails does not stop the others.

    Items are written to DIRECTORY/SCALE/PAPER/ITEM, all measurements of a paper to
    DIRECTORY/SCALE/PAPER/results.csv, a page of everything to DIRECTORY/report.html; with other
    settings than those of items that are there, or fewer seeds, only with a --label of their own.
    """
    from shapeshift.papers.catalogue import find_items, read_study
    from shapeshift.papers.planning import find_grid, plan_items

    settings, seeds = overrides or [], seed or []
    substitute: Grid | None = None
    is_study = target is not None and target.endswith((".yaml", ".yml"))
    if target is not None and "=" in target and not is_study:  # a setting, and no paper before it
        settings, target = [target, *settings], None
    if show_list:
        if is_study:
            raise usage_error("--list", "lists papers; see a study with --dry-run")
        _list(target, scale or "tiny", directory, settings, seeds)
        return
    if target is None:
        raise usage_error("PAPER", "name a paper; --list shows them")
    if is_study and grid is not None:
        raise usage_error("--grid", "has no effect: the study's file names its grid")
    if is_study:
        name, (paper, substitute) = STUDIES, read_study(Path(target))
        items = paper.items
    else:
        name, paper, items = find_items(target)
        if grid is not None:
            substitute = find_grid(grid)
            label = label or substitute.name
    scales = [*substitute.config.scales] if substitute else []
    scale = scale or (scales[0] if len(scales) == 1 else "tiny")
    chosen: dict[str, list[str]] = {}
    for axis, names in (_pair(text, "--only", "AXIS=NAME,...") for text in only or []):
        chosen.setdefault(axis, []).extend(names.split(","))
    command = command_line()
    plan = plan_items(
        name, paper, items, scale, settings, seeds, command, label, chosen, substitute
    )
    for each in (item for item in items if item not in plan.items):
        notice(f"{name}:{each} has no run with this seed: left out")
    make(plan, directory, prepared, jobs, gpus, gpus_per_run, slurm, run=run, dry_run=dry_run)


def command_line() -> str:
    """Return what was typed, for the records."""
    return shlex.join(["shapeshift", *sys.argv[1:]])


def make(
    plan: Plan,
    directory: Path,
    prepared: Path,
    jobs: int | None = None,
    gpus: str | None = None,
    gpus_per_run: int = 1,
    slurm: list[str] | None = None,
    *,
    run: bool = True,
    dry_run: bool = False,
) -> None:
    """Run what a plan needs and write its items; the options are those of `reproduce`.

    Raises:
        typer.Exit: some run failed, or some item could not be made.
    """
    from shapeshift.cli.grid_display import show_failures
    from shapeshift.cli.signals import ending_on_signals

    if dry_run:
        from shapeshift.cli.dry_run import show_plan

        plan.check_shared(gpus_per_run)
        show_plan(plan, prepared)
        return
    plan.open_folder(directory)
    launcher = _launcher(plan, directory, jobs, gpus, gpus_per_run, slurm)
    with ending_on_signals(
        "finished runs stay, the others are saved: the same command goes on, and with --no-run"
        " writes what is there"
    ):
        report = None
        if run and plan.trained:
            report = _run(plan, directory, prepared, launcher, gpus_per_run)
        whole = _write(plan, directory, prepared)
        _report(directory)
    if report is not None:
        show_failures(report)  # at the end, where it is seen
        whole = whole and report.ok
    if not whole:
        raise typer.Exit(1)


def _launcher(
    plan: Plan,
    directory: Path,
    jobs: int | None,
    gpus: str | None,
    gpus_per_run: int,
    slurm: list[str] | None,
) -> Launcher:
    from shapeshift.lab.launchers import InProcess, Slurm, Subprocesses

    if slurm:
        if gpus is not None:
            raise usage_error("--gpus", "does not go with --slurm")
        parameters = dict(map(_parameter, slurm))
        if gpus_per_run > 1:
            of_a_job = parameters.setdefault("gpus_per_node", gpus_per_run)
            if of_a_job != gpus_per_run:
                problem = f"is {gpus_per_run}, but a job has gpus_per_node={of_a_job}"
                raise usage_error("--gpus-per-run", problem)
        return Slurm(directory / "slurm", jobs or SLURM_JOBS, parameters, gpus_per_run)
    if gpus is not None or gpus_per_run > 1:
        if jobs is not None:
            raise usage_error("--jobs", "does not go with --gpus or --gpus-per-run")
        return Subprocesses.on_gpus(None if gpus is None else gpus.split(","), gpus_per_run)
    if jobs is None:
        return Subprocesses.for_cells([*chain.from_iterable(plan.trained.values())])
    return Subprocesses.on_cpu(jobs) if jobs else InProcess()


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise usage_error(option, f"expected {form}, got {text!r}")
    return name, value


def _parameter(text: str) -> tuple[str, object]:
    from shapeshift.yaml_file import parse_yaml

    name, value = _pair(text, "--slurm", "KEY=VALUE")
    try:
        return name, parse_yaml(value)
    except ShapeshiftError:
        return name, value


def _run(
    plan: Plan, directory: Path, prepared: Path, launcher: Launcher, gpus_per_run: int = 1
) -> Report:
    """Run the cells of all grids, whichever is next as soon as there is room."""
    from shapeshift.cli.grid_display import GridDisplay
    from shapeshift.cli.progress import Display
    from shapeshift.lab.launchers import Slurm
    from shapeshift.papers import reproduce as papers
    from shapeshift.papers.dry_run import check_space

    finished = plan.finished(directory)
    plan.check_shared(gpus_per_run, finished)
    missing = plan.missing(prepared, finished)
    if not isinstance(launcher, Slurm):  # whose jobs run on other machines
        missing += plan.missing_hardware(finished)
    if missing:
        raise ShapeshiftError("; ".join(missing))
    check_space(plan, directory, finished)
    with Display() as display:
        plan.fetch(finished, display)
    for grid, cells in plan.trained.items():
        done = sum((grid, cell.key) in finished for cell in cells)
        title = f"{plan.grids[grid].config.title or grid}: {done} of {len(cells)} runs are finished"
        for line in (title, *plan.usable(grid)[1]):
            notice(line)
    with GridDisplay(list(chain.from_iterable(plan.trained.values()))) as table:
        return papers.run(plan, directory, launcher, prepared_root=prepared, observer=table)


def _write(plan: Plan, directory: Path, prepared: Path) -> bool:
    """Write and show the items; return whether all could be made, and no text was missing."""
    from shapeshift.papers import reproduce as papers

    failures: list[str] = []

    def note(item: str, error: ShapeshiftError) -> None:
        failures.append(f"{plan.name}:{item} cannot be made: {error}")

    made = papers.write(plan, directory, prepared_root=prepared, on_failure=note)
    _show(made)
    for failure in failures:
        notice(failure, "bold red")
    return not failures and not any(one.lacks_text for one in made)


def _report(directory: Path) -> None:
    """Write the page of all results; that it cannot be made takes nothing from the items."""
    from shapeshift.report.page import PAGE, write_page

    try:
        write_page(directory, directory / PAGE)
    except ShapeshiftError as error:
        notice(f"{PAGE} is not written: {error}", "bold red")
    else:
        show(directory / PAGE)


def _show(made: list[Made]) -> None:
    from shapeshift.papers.write import text_table

    for one in made:
        for table in one.document.tables:
            show(f"{one.document.title}: {table.title}")
            show_table(text_table(table))
        for finding in one.document.findings:
            show(f"{finding.verdict}: {finding.claim}")
            show(f"  {finding.measured}")
        for figure in one.document.figures:
            show(one.directory / f"{figure.name}.png")
        show(one.directory)


def _list(
    target: str | None, scale: str, directory: Path, settings: list[str], seeds: list[int]
) -> None:
    from rich import box
    from rich.table import Table

    from shapeshift.papers.catalogue import PAPERS, find_items
    from shapeshift.papers.planning import item_progress

    table = Table("item", "what it is", f"finished runs, {scale}", box=box.SIMPLE_HEAD)
    for each in PAPERS if target is None else [target]:
        for one in item_progress(*find_items(each), scale, directory, settings, seeds):
            done = f"{one.num_finished}/{one.num_cells}" if one.num_cells else "needs none"
            if one.num_cells is None:
                done = "not with this seed" if seeds else "not at this scale"
            table.add_row(f"{one.paper}:{one.item}", one.title, done)
    results_console().print(table)
