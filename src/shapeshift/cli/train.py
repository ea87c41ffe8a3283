"""`shapeshift train`: from a configuration to a trained, tested model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeshift.cli.options import PREPARED_ROOT, ConfigFile, Overrides, PreparedRoot


def train(
    config: ConfigFile,
    overrides: Overrides = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder of the run. [default: runs/CONFIG-POSITION]", show_default=False),
    ] = None,
    prepared: PreparedRoot = PREPARED_ROOT,
    test: Annotated[
        bool, typer.Option(help="Translate and score the test set when training is done.")
    ] = True,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check every setting, print parameters, tokens, FLOPs and memory, and stop.",
        ),
    ] = False,
) -> None:
    """Train a model: prepare the data, train, average the last checkpoints, test.

    The same command continues a run that was stopped. Everything that translating needs is in the
    run's folder.
    """
    from shapeshift.cli.progress import Steps, TrainingDisplay, console, make_progress, show_resumed
    from shapeshift.config import load_config

    settings = load_config(config, overrides or [])
    if dry_run:
        from shapeshift.cli.dry_run import show_estimate

        show_estimate(settings)
        return
    from shapeshift.evaluation.tables import length_table, score_table
    from shapeshift.experiments import run as runs

    directory = run or Path("runs") / f"{config.stem}-{settings.position.name}"
    console.print(f"run {directory}", highlight=False)
    with make_progress() as progress:
        display = TrainingDisplay(progress, directory.name, settings.training.max_updates)
        done = runs.train(
            settings,
            directory,
            display,
            prepared_root=prepared,
            on_prepare=Steps(progress),
            on_resume=show_resumed,
        )
        if not test:
            return
        steps = Steps(progress)
        scores = runs.translate_and_score(
            done,
            prepared_root=prepared,
            on_translate=lambda count, total: steps(f"test {directory.name}", count, total),
        )
    for table in (score_table({directory.name: scores}), length_table({directory.name: scores})):
        typer.echo(table.markdown())
