"""`shapeshift reproduce`: the tables and figures of a paper."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shapeshift._system.errors import shell_command
from shapeshift.cli.options import (
    PREPARED_ROOT,
    DryRunOfGrid,
    Jobs,
    Overrides,
    PreparedRoot,
    Results,
    usage_error,
)
from shapeshift.cli.output import notice, show_table
from shapeshift.cli.run_plan import run_plan


def reproduce(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER[:STUDY,...] or FILE.yaml",
            help="A paper or its studies, such as shape or shape:table2,figure3; a study file; or"
            " the folder of a paper of your own, with a paper.yaml.",
        ),
    ] = None,
    overrides: Overrides = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Profile of the runs: tiny, small or paper, or a profile of your own grid."
            " [default: tiny, or the only profile of the grid]",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="PAPER:STUDY or FILE.yaml",
            help="Make the studies from the runs of this grid instead of their own. It must have"
            " the same axes.",
        ),
    ] = None,
    directory: Results = Path("reproduced"),
    prepared: PreparedRoot = PREPARED_ROOT,
    jobs: Jobs = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Submit each run as a job to a SLURM cluster, with this parameter of submitit,"
            " such as slurm_partition=gpu or timeout_min=600; may be given several times.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Only run these seeds. [default: those of the grid]"),
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Train missing runs; --no-run only writes finished results.")
    ] = True,
    dry_run: DryRunOfGrid = False,
    show_list: Annotated[
        bool,
        typer.Option(
            "--list", help="Show papers, studies and how many of their runs are finished."
        ),
    ] = False,
) -> None:
    """Reproduce a table or figure of a paper, or run your own study.

    Trains the runs of its grid, and writes our table or figure next to the one in the paper.
    Finished runs are not repeated. After Ctrl-C or SIGTERM, the current runs save a checkpoint, and
    the command exits with 130 or 143; the same command continues them. The command may run several
    times at once, on several machines that share the folder. A run that fails does not stop the
    others.

    Studies are written to DIRECTORY/PROFILE/PAPER/STUDY, and a page with all results to
    DIRECTORY/report.html. If a study with other settings exists there, name another --directory.
    """
    from shapeshift.study.catalogue import find_grid, find_studies
    from shapeshift.study.planning import plan_studies

    settings, seeds, label = overrides or [], seed or [], ""
    is_study = target is not None and target.endswith((".yaml", ".yml"))
    if show_list:
        if is_study:
            raise usage_error("--list", "lists papers; see a study with --dry-run")
        unused = {
            "--seed": seeds, "--grid": grid, "--jobs": jobs is not None, "--slurm": slurm,
            "--no-run": not run, "--dry-run": dry_run,
        }  # fmt: skip
        for option in (option for option, is_given in unused.items() if is_given):
            raise usage_error(option, "has no effect: --list counts the runs of the papers' grids")
        _list(target, profile or "tiny", directory, settings)
        return
    if target is None:
        raise usage_error("PAPER", "name a paper; --list shows them")
    if is_study and grid is not None:
        raise usage_error("--grid", "has no effect: the study's file names its grid")
    paper = find_studies(target)
    if grid is not None:
        other = find_grid(grid)
        label = other.name.replace(":", "-")
        studies = {name: study.on(other) for name, study in paper.studies.items()}
        paper = replace(paper, studies=studies)
    profiles = {each for own in paper.grids.values() for each in own.config.profiles}
    profile = profile or (profiles.pop() if len(profiles) == 1 else "tiny")
    command = shell_command(*sys.argv[1:])
    plan = plan_studies(paper, profile, settings, seeds, command, label)
    for each in (study for study in paper.studies if study not in plan.paper.studies):
        chosen = "with this seed" if seeds else f"in profile {profile}"
        notice(f"{paper.name}:{each} has no run {chosen}: left out")
    run_plan(plan, directory, prepared, jobs, slurm, run=run, dry_run=dry_run)


def _list(target: str | None, profile: str, directory: Path, settings: list[str]) -> None:
    from shapeshift.evaluation.tables import Table
    from shapeshift.study.catalogue import PAPERS, find_studies
    from shapeshift.study.planning import plan_studies

    rows = []
    for each in PAPERS if target is None else [target]:
        paper = find_studies(each)
        there = {name: x for name, x in paper.studies.items() if profile in x.grid.config.profiles}
        known = replace(paper, studies=there or paper.studies)
        progress = plan_studies(known, profile, settings).progress(directory)
        for name, study in paper.studies.items():
            done = "not in this profile"
            if name in progress:
                done = "{}/{}".format(*progress[name]) if progress[name][1] else "needs none"
            rows.append((f"{paper.name}:{name}", study.spec.title, done))
    show_table(Table(("study", "what it is", f"finished runs, {profile}"), rows), numbers=False)
