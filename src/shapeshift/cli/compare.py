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
        list[str],
        typer.Option(
            metavar="NAME,...",
            help="Schemes, see `shapeshift positions`; the others are compared with the first.",
        ),
    ] = ["ape,shape,rpe"],  # noqa: B006 (Typer copies it)
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME [KEY=VALUE]...'",
            help="One more system: a scheme, or a name and settings, such as 'shape-10"
            " position=shape position.position_ids.max_offset=10'; may be given several times.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of seeds of each system; a verdict needs three. The first seed is"
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
    against the first system, and a figure. Finished runs are not repeated, and runs that were
    stopped continue.

    Example: shapeshift compare mine.yaml --position ape,shape,rope --seeds 3
    """
    from shapeshift.study.compare import comparison
    from shapeshift.study.grid import sets_seed
    from shapeshift.study.planning import CELLS, plan_items

    schemes = [name for names in position for name in names.split(",")]
    systems = _parse_systems([*schemes, *(system or ())])
    for setting in chain(overrides or (), *systems.values()):
        if sets_seed(setting):
            raise usage_error(setting, "give `shapeshift compare` --seeds NUMBER instead")
    paper = comparison(config, systems, seeds)
    [grid] = paper.grids.values()
    [scale] = grid.config.scales
    command = shell_command(*sys.argv[1:])
    plan = plan_items(paper, scale, overrides or [], command=command)
    run_plan(plan, directory, prepared, jobs=jobs, dry_run=dry_run)
    if not dry_run:
        runs = {cell.name: directory / CELLS / cell.key / "run" for cell in plan.runs}
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
) -> None:
    """Compare APE, SHAPE and RPE on the built-in corpus.

    The same as `shapeshift compare demo --position ape --system 'shape-10 position=shape
    position.position_ids.max_offset=10' --system rpe`, which takes more options: training pairs of
    at most 20 subwords, test pairs of all lengths. Some minutes on two cores.
    """
    compare(Path("demo-fast" if fast else "demo"), overrides, ["ape"], [SHAPE_10, "rpe"])
    notice(
        "these runs are short and have one seed: compare them at lengths of training (up to 20) and"
        " just beyond. Further out all three translate badly, the order changes with the seed, and"
        " SHAPE, which learns word order more slowly, may be behind APE (docs/faq.md)"
    )


def _parse_systems(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """Return name → settings; the setting of a scheme is its name."""
    from shapeshift.positions.scheme import is_scheme, no_scheme

    options = "--position, --system"
    systems: dict[str, tuple[str, ...]] = {}
    for text in texts:
        try:
            name, *settings = shlex.split(text) or [""]
        except ValueError as error:  # an unclosed quote
            raise usage_error(options, f"{text!r}: {error}") from error
        if name in systems:
            raise usage_error(options, f"{name!r} is given twice")
        if not settings and not is_scheme(name):
            raise usage_error(options, no_scheme(name))
        scheme = [f"position={name}"] if is_scheme(name) else []
        systems[name] = (*scheme, *settings)
    if len(systems) < 2:
        raise usage_error(
            options,
            "name two or more, separated by commas: --position ape,rope (`shapeshift train`"
            " trains one)",
        )
    return systems
