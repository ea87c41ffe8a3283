"""`shapeshift train`: train and test the model of a configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import PREPARED_ROOT, ConfigFile, Overrides, PreparedRoot
from shapeshift.cli.output import clock_time, console, notice, show_table, time_range

if TYPE_CHECKING:
    from shapeshift.config import Config
    from shapeshift.run.folder import Run


DAY_S = 24 * 60 * 60


def train(
    config: ConfigFile,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run. [default: runs/CONFIG-POSITION]")
    ] = None,
    prepared: PreparedRoot = PREPARED_ROOT,
    test: Annotated[
        bool, typer.Option(help="Translate and score the test set after training.")
    ] = True,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before training of more than a day.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check every setting, measure a few steps here, print parameters, time, disk"
            " space, and which text is missing, and stop.",
        ),
    ] = False,
) -> None:
    """Train and test a model, or continue a run that was stopped.

    Prepares the data, trains, averages the last checkpoints, translates the test set and scores it.
    After Ctrl-C or SIGTERM, it finishes the update, saves a checkpoint and exits with 130 or 143;
    the same command continues the run. The run's folder has everything that translating needs.
    On several GPUs: torchrun --nproc-per-node N -m -- shapeshift train ...
    """
    from shapeshift.cli.dry_run import show_estimates
    from shapeshift.config import load_config
    from shapeshift.run.folder import has_begun
    from shapeshift.study.grid import PlannedRun

    settings = load_config(config, overrides or [])
    if dry_run:
        axes = {"position": settings.position.name}
        planned = PlannedRun(config.stem, "", axes, settings.training.seed, settings)
        show_estimates([planned])
        return
    estimate: tuple[float, float] | None = None
    directory = run or Path("runs") / f"{config.stem}-{settings.position.name}"
    if not has_begun(directory) and "RANK" not in os.environ:  # nor under torchrun
        estimate = announce(settings)
        if estimate[1] > DAY_S and not yes and sys.stdin.isatty():
            typer.confirm("That is more than a day on this machine. Train?", abort=True, err=True)
    done = _train(settings, directory, prepared, test, estimate)
    if test and done is not None:
        _test(done, prepared)


def announce(settings: Config) -> tuple[float, float]:
    """Print an estimate of the training time from a few measured steps. Return the seconds without
    and with the current load of other programs."""
    from shapeshift._system.threads import num_cores, set_num_threads
    from shapeshift.run.requirements import measure_run, require_text

    require_text(settings)
    set_num_threads(settings.model.dim)
    num_parameters, update = measure_run(settings)
    updates = settings.training.max_updates
    low, high = updates * update.low, updates * update.high
    line = (
        f"{num_parameters:,} parameters, {updates:,} updates of about {update.low:.2g} s (measured"
    )
    if update.others:
        line += f" while other programs used {update.others:.1f} of {num_cores()} cores"
    notice(
        f"{line}): {time_range(low, high)}, until {clock_time(high)}"
        + " at the latest" * (high > low)
    )
    return low, high


def _train(
    settings: Config,
    directory: Path,
    prepared: Path,
    tested: bool,
    estimate: tuple[float, float] | None,
) -> Run | None:
    """Train; return the run in the main process and `None` in the others. `estimate` is the
    announced time."""
    from shapeshift._system.threads import set_num_threads
    from shapeshift.cli import progress
    from shapeshift.run.train import train as train_run
    from shapeshift.training.parallel import join
    from shapeshift.training.stopping import StopSignals

    set_num_threads(settings.model.dim)
    with join(settings.training) as parallel:
        console().quiet = not parallel.is_main
        notice(f"run {directory}")
        with progress.Display() as display:
            done = train_run(
                settings,
                directory,
                progress.TrainingDisplay(
                    display, directory.name, settings.training.max_updates, estimate
                ),
                prepared_root=prepared,
                tested=tested,
                stop=StopSignals(grace_s=1.0 if parallel.world_size > 1 else 0.0),
                parallel=parallel,
            )
        if not parallel.is_main:
            return None
        last = done.checkpoints.updates()[-1]
        if last < settings.training.max_updates:
            best = done.checkpoints.progress(last).best_update
            notice(
                f"ended after update {last}: no validation since update {best} was better"
                f" (training.patience={settings.training.patience})"
            )
        return done


def _test(run: Run, prepared: Path) -> None:
    from shapeshift.cli.progress import Display
    from shapeshift.evaluation.tables import score_tables
    from shapeshift.run.measures import translate_and_score

    name = run.directory.name
    with Display() as display:
        scores = translate_and_score(
            run,
            prepared_root=prepared,
            on_translate=lambda count, total: display(f"test {name}", count, total),
        )
    for table in score_tables(name, scores):
        show_table(table.header, table.rows, table.notes)
    notice(f"translations and scores: {run.directory / 'results'}")
