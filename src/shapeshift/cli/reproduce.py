"""`shapeshift reproduce`: the tables and figures of a paper."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from shapeshift.cli.output import notice, show, show_table
from shapeshift.cli.run_plan import run_plan

if TYPE_CHECKING:
    from shapeshift.study.study import Paper


def reproduce(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER[:STUDY,...] or FILE.yaml",
            help="A paper or its studies, such as shape or shape:table2,figure3; all for every"
            " paper; a study file; or the folder of a paper of your own, with a paper.yaml.",
        ),
    ] = None,
    overrides: Overrides = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Profile of the runs: tiny, medium, small or paper, or a profile of your own grid."
            " [default: tiny, or the only profile of the grid]"
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
        typer.Option(
            help="Only train these seeds; tables have all that are finished. [default: those of the"
            " grid]"
        ),
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
    claims: Annotated[
        bool,
        typer.Option(
            help="With --list: show the claims of the papers, and which of them the profile can"
            " test."
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
    from shapeshift.study.catalogue import PAPERS, find_grid, find_paper, find_studies
    from shapeshift.study.planning import plan_studies

    settings, seeds, label = overrides or [], seed or [], ""
    is_study = target is not None and target.endswith((".yaml", ".yml"))
    if show_list:
        unused = {
            "--seed": seeds, "--grid": grid, "--jobs": jobs is not None, "--slurm": slurm,
            "--no-run": not run, "--dry-run": dry_run,
        }  # fmt: skip
        for option in (option for option, is_given in unused.items() if is_given):
            raise usage_error(option, "has no effect: --list counts the runs of grids")
        if claims and settings:
            raise usage_error("--claims", f"{settings[0]} has no effect on the papers' claims")
        listed = profile or (
            default_profile(find_studies(target)) if target and is_study else "tiny"
        )
        if claims:
            _list_claims(target, listed)
        else:
            _list(target, listed, directory, settings)
        return
    if claims:
        raise usage_error("--claims", "has no effect without --list")
    if target is None:
        raise usage_error("PAPER", "name a paper; --list shows them")
    if target == EVERY:
        status = 0
        known = [x for x in PAPERS if profile is None or profile in find_paper(x).profiles]
        for name in known or PAPERS:
            try:
                reproduce(
                    name, overrides, profile, grid, directory, prepared, jobs, slurm, seed, run,
                    dry_run,
                )  # fmt: skip
            except typer.Exit as failed:  # the studies of other papers are made all the same
                status = max(status, failed.exit_code)
        for name in (x for x in PAPERS if x not in known):
            notice(f"{name} has no profile {profile}: left out")
        raise typer.Exit(status)
    if seeds and not run:
        raise usage_error("--seed", "has no effect with --no-run")
    if is_study and grid is not None:
        raise usage_error("--grid", "has no effect: the study's file names its grid")
    paper = find_studies(target)
    if grid is not None:
        other = find_grid(grid)
        label = other.name.replace(":", "-")
        studies = {name: study.on(other) for name, study in paper.studies.items()}
        paper = replace(paper, studies=studies)
    profile = profile or default_profile(paper)
    command = shell_command(*sys.argv[1:])
    asked = paper if ":" in target else paper.with_profile(profile)
    plan = plan_studies(asked, profile, settings, seeds, command, label)
    for each in (study for study in paper.studies if study not in plan.paper.studies):
        notice(f"{paper.name}:{each} has no run in profile {profile}: left out")
    run_plan(plan, directory, prepared, jobs, slurm, run=run, dry_run=dry_run)


def default_profile(paper: Paper) -> str:
    """Return the only profile of a paper or study, or tiny."""
    return next(iter(paper.profiles)) if len(paper.profiles) == 1 else "tiny"


EVERY = "all"
"""Names all papers of the package."""


def _list_claims(target: str | None, profile: str) -> None:
    from shapeshift.evaluation.tables import NO_VALUE
    from shapeshift.study.catalogue import PAPERS, find_studies
    from shapeshift.study.power import detectable, plan_tests

    def shown(value: float | None) -> str:
        return NO_VALUE if value is None else f"{value:.2f}"

    rows = []
    for each in PAPERS if target in (None, EVERY) else [target]:
        paper = find_studies(each)
        for name, study in paper.studies.items():
            known = study.spec.claims if profile in study.grid.config.profiles else ()
            for test in plan_tests(known, study.grid, profile):
                claim, rule, spread = test.claim, test.claim.rule, test.spread
                sizes = [shown(detectable(claim, spread, n) if spread else None) for n in (3, 5)]
                margin = rule in ("equivalent", "no worse")
                effect = f"within {claim.margin:g}" if margin else shown(claim.effect or None)
                tested = "yes" if test.is_made else "no"
                rows.append(
                    (f"{paper.name}:{name}", claim.claim, effect, *sizes, shown(test.power), tested)
                )
    header = ("study", "claim", "paper", "3 seeds find", "5 seeds find", "power", "tested")
    show_table(header, rows, numbers=False)
    show(
        f"{profile}: three or five seeds find a difference of this size with a power of 0.8; power:"
        " with the profile's seeds, for a difference as large as the paper's"
    )


def _list(target: str | None, profile: str, directory: Path, settings: list[str]) -> None:
    from shapeshift.study.catalogue import PAPERS, find_studies
    from shapeshift.study.planning import plan_studies

    rows = []
    for each in PAPERS if target in (None, EVERY) else [target]:
        paper = find_studies(each)
        known = paper.with_profile(profile)
        progress = plan_studies(known, profile, settings).progress(directory)
        for name, study in paper.studies.items():
            done = "not in this profile"
            if name in progress:
                done = "{}/{}".format(*progress[name]) if progress[name][1] else "needs none"
            rows.append((f"{paper.name}:{name}", study.spec.title, done))
    show_table(("study", "what it is", f"finished runs, {profile}"), rows, numbers=False)
