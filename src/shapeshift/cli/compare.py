"""`shapeshift compare` and `shapeshift demo`: position representations on the same text."""

from __future__ import annotations

import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from shapeshift._system.errors import shell_command
from shapeshift.cli.options import (
    PREPARED_ROOT,
    SHAPE_10,
    ConfigFile,
    DryRunOfGrid,
    Jobs,
    Overrides,
    PreparedRoot,
    Results,
    usage_error,
)
from shapeshift.cli.output import notice
from shapeshift.cli.run_plan import run_plan


def compare(
    config: ConfigFile,
    overrides: Overrides = None,
    position: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,... or 'NAME KEY=VALUE...'",
            help="Schemes, see `shapeshift positions`, or one position of a name and settings, such"
            " as 'shape-10 position=shape position.position_ids.max_offset=10'; may be given"
            " several times. The others are compared with the first. [default: ape,shape,rpe]",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of seeds of each position; a verdict needs three. The first seed is"
            " `training.seed` of the configuration, 1 by default, the others are the numbers after"
            " it.",
        ),
    ] = 1,
    directory: Results = Path("compared"),
    prepared: PreparedRoot = PREPARED_ROOT,
    jobs: Jobs = None,
    dry_run: DryRunOfGrid = False,
) -> None:
    """Train with several position representations and compare them.

    Prints and writes BLEU, chrF, speed and memory, BLEU by source length, significance tests
    against the first position, and a figure. Finished runs are not repeated, and runs that were
    stopped continue.

    Example: shapeshift compare mine.yaml --position ape,shape,rope --seeds 3
    """
    from shapeshift.study.compare import comparison
    from shapeshift.study.grid import sets_seed
    from shapeshift.study.planning import RUNS, plan_studies

    positions = _parse_positions(position or ["ape,shape,rpe"])
    for setting in chain(overrides or (), *positions.values()):
        if sets_seed(setting):
            raise usage_error(
                setting,
                "give `shapeshift compare` --seeds NUMBER, of the seeds; the first one is"
                " training.seed of the configuration file",
            )
    paper = comparison(config, positions, seeds, overrides or ())
    [grid] = paper.grids.values()
    [profile] = grid.config.profiles
    command = shell_command(*sys.argv[1:])
    plan = plan_studies(paper, profile, overrides or [], command=command)
    run_plan(plan, directory, prepared, jobs=jobs, dry_run=dry_run)
    if not dry_run:
        runs = {planned.name: directory / RUNS / planned.key / "run" for planned in plan.to_train}
        for name, run in runs.items():
            notice(f"{name}: {run}")
        notice(f"next: {shell_command('inspect', next(iter(runs.values())), 'A sentence.')}")


def demo(
    overrides: Overrides = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Take about a minute: little text and few updates only show that everything"
            " works; they say nothing about the positions.",
        ),
    ] = False,
    directory: Results = Path("compared"),
) -> None:
    """Compare APE, SHAPE and RPE on the built-in corpus.

    The same as `shapeshift compare demo --position ape --position 'shape-10 position=shape
    position.position_ids.max_offset=10' --position rpe`, which takes more options: training pairs
    of at most 20 subwords, test pairs of all lengths. Some minutes on two cores.
    """
    config = Path("demo-fast" if fast else "demo")
    compare(config, overrides, ["ape", SHAPE_10, "rpe"], directory=directory)
    notice(
        "these runs are short and have one seed: compare them at lengths of training (up to 20) and"
        " just beyond. Further out all three translate badly, the order changes with the seed, and"
        " SHAPE, which learns word order more slowly, may be behind APE (docs/faq.md)"
    )


def _parse_positions(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """Return name → settings; the setting of a scheme is its name."""
    from shapeshift.positions.scheme import is_scheme, no_scheme

    option = "--position"
    found: dict[str, tuple[str, ...]] = {}
    for text in chain.from_iterable([x] if "=" in x else x.split(",") for x in texts):
        try:
            name, *settings = shlex.split(text) or [""]
        except ValueError as error:  # an unclosed quote
            raise usage_error(option, f"{text!r}: {error}") from error
        if name in found:
            raise usage_error(option, f"{name!r} is given twice")
        if not settings and not is_scheme(name):
            raise usage_error(option, no_scheme(name))
        scheme = [f"position={name}"] if is_scheme(name) else []
        found[name] = (*scheme, *settings)
    if len(found) < 2:
        raise usage_error(
            option,
            "name two or more, separated by commas: --position ape,rope; what has settings takes a"
            " --position of its own: --position 'mine position=rope model.dim=128' (`shapeshift"
            " train` trains one)",
        )
    return found
