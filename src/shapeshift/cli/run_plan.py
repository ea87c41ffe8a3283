"""Trains the runs of a plan and writes its studies, for `compare` and `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.options import usage_error
from shapeshift.cli.output import notice, show, show_table
from shapeshift.cli.signals import ending_on_signals

if TYPE_CHECKING:
    from shapeshift.study.launchers import Launcher
    from shapeshift.study.planning import Plan
    from shapeshift.study.runner import Failed

SLURM_JOBS = 100
"""Number of jobs at a time without --jobs."""


def run_plan(
    plan: Plan,
    directory: Path,
    prepared: Path,
    jobs: int | None = None,
    slurm: list[str] | None = None,
    *,
    run: bool = True,
    dry_run: bool = False,
) -> None:
    """Train the runs of a plan and write its studies; the options are those of `reproduce`.

    Raises:
        typer.Exit: if a run failed or a study could not be made.
    """
    if plan.untested:
        notice(plan.untested)
    if dry_run:
        from shapeshift.cli.dry_run import show_estimates

        plan.check_folder(directory)
        left, num_runs = plan.unfinished(directory), len(plan.to_train)
        if len(left) < num_runs:
            notice(f"{num_runs - len(left)} of {num_runs} runs are finished")
        if left:
            show_estimates(left)
        return
    from shapeshift.study import planning
    from shapeshift.study.report.page import PAGE, write_page
    from shapeshift.study.write import text_table

    launcher = choose_launcher(plan, directory, jobs, slurm)
    plan.open_folder(directory)
    with ending_on_signals("finished runs stay, the others are saved: the same command goes on"):
        failed: Failed = []
        if run and plan.to_train:
            failed = run_all(plan, directory, prepared, launcher)
        documents, failures = planning.write_studies(plan, directory, prepared)
        for document in documents:
            folder = plan.folder(directory) / document.study
            for table in document.tables:
                show(f"{document.title}: {table.title}")
                shown = text_table(table)
                show_table(shown.header, shown.rows, shown.notes)
                if table.figure:
                    show(f"figure: {folder / table.name}.png")
            for finding in document.findings:
                show(f"{finding.verdict}: {finding.claim}")
                show(f"  {finding.measured}")
            show(f"tables: {folder}")
        for study, error in failures.items():
            notice(f"{plan.paper.name}:{study} cannot be made: {error}", "bold red")
        try:
            if documents:
                write_page(directory, directory / PAGE)
                without = f", without {', '.join(failures)} of this command" if failures else ""
                show(f"report: {directory / PAGE}{without}")
        except ShapeshiftError as error:  # the studies are written all the same
            notice(f"{PAGE} is not written: {error}", "bold red")
    for planned, message in failed:  # at the end, where users see it
        notice(f"{planned.name} ({planned.key}) failed:", "bold red")
        for line in message.splitlines():
            notice(f"  {line}")
    if failed or failures:
        raise typer.Exit(1)


def choose_launcher(
    plan: Plan, directory: Path, jobs: int | None, slurm: list[str] | None
) -> Launcher:
    """Return where the runs run; the options are those of `reproduce`."""
    from shapeshift.config.yaml_file import parse_yaml
    from shapeshift.study.launchers import InProcess, Slurm, Subprocesses

    if slurm:
        pairs = [text.partition("=") for text in slurm]
        if not all(name and equals for name, equals, _ in pairs):
            raise usage_error("--slurm", f"expected KEY=VALUE, got {' '.join(slurm)!r}")
        parameters = {name: parse_yaml(value) for name, _, value in pairs}
        if len(parameters) < len(pairs):
            raise usage_error("--slurm", f"give each KEY once, got {' '.join(slurm)!r}")
        if jobs == 0:
            raise usage_error("--jobs", "0 trains in this process; with --slurm give 1 or more")
        return Slurm(directory / "slurm", jobs or SLURM_JOBS, parameters)
    if jobs is None:
        return Subprocesses.for_runs(plan.to_train)
    return Subprocesses.on_cpu(jobs) if jobs else InProcess()


def run_all(plan: Plan, directory: Path, prepared: Path, launcher: Launcher) -> Failed:
    """Start each run of all grids as soon as there is room; returns like `study.runner`."""
    from shapeshift.cli.progress import Display, GridDisplay
    from shapeshift.run.folder import prepared_directory
    from shapeshift.run.measures import usable
    from shapeshift.run.requirements import text_notices
    from shapeshift.study import runner
    from shapeshift.study.launchers import Slurm
    from shapeshift.study.planning import RUNS, get_ready

    unfinished = plan.unfinished(directory)
    with Display() as display:  # the jobs of a cluster run on other machines
        hardware = not isinstance(launcher, Slurm)
        get_ready(unfinished, directory, prepared, display, hardware=hardware)
    for name in dict.fromkeys(planned.grid for planned in plan.to_train):
        measures = plan.paper.grids[name].config.measures
        runs = {
            planned.key for planned in plan.to_train if planned.grid == name
        }  # runs may share one
        finished = runs - {planned.key for planned in unfinished}
        notice(f"{name}: {len(finished)} of {len(runs)} runs are finished")
        for line in usable(measures)[1]:
            notice(line)
    with Display() as display:
        failed = runner.run_all(
            plan.to_train,
            directory / RUNS,
            launcher,
            prepared_root=prepared,
            changed=GridDisplay(display, plan.to_train).changed,
            command=plan.command,
        )
    folders = {prepared_directory(x.config.data, prepared): x.config for x in unfinished}
    for folder, config in folders.items():
        for line in text_notices(config, folder) if folder.is_dir() else ():
            notice(line)
    return failed
