"""The work on one run: train, then measure, each measure once.

As a program (`python -m shapeshift.study.work ORDER`, in JSON) it is what runners start in
processes of their own. It ends when its standard input closes. It exits with 0, with `BUSY` if
another process is at work on the run, and with 1 if it failed; what went wrong is then the end of
the run's `output.log`.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError, out_of_memory
from shapeshift._system.files import make_directory, open_in_place, refuse_link, save, tidy, writing
from shapeshift._system.hashes import digest, hash_file
from shapeshift._system.locks import LockedError, locked
from shapeshift._system.own_modules import is_own, source_sha256
from shapeshift._system.schema import Strict
from shapeshift.config import Config
from shapeshift.data.corpora import corpus_fingerprint, fetch
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import Run, has_begun, prepared_directory
from shapeshift.run.identity import position_options, run_key
from shapeshift.run.measures import TRAIN, measure_training, take
from shapeshift.run.record import MeasureRecord, RunFolder, start_of
from shapeshift.run.train import train
from shapeshift.training.observer import Observer
from shapeshift.training.precision import choose_device, describe_hardware
from shapeshift.training.stopping import StoppedError, StopSignals, end_with_parent

BUSY = 75
"""Exit status: another process is at work on the run (EX_TEMPFAIL of sysexits.h)."""

STOPPED = 128 + signal.SIGTERM
"""Exit status: a signal has ended the work, which can go on."""

_SAME_SIGNAL_S = 1.0
"""A scheduler sends a signal to every process, and the runner passes on what it gets itself."""


class Order(Strict):
    """The work on one run, as a launcher passes it on.

    Attributes:
        folder: the run's.
        config: its settings.
        measures: names of measures, in the order in which they are taken.
        prepared_root: see `run.train.train`.
        command: what the user typed, for the records.
        sources: see `own_sources`.
    """

    folder: Path
    config: Config
    measures: tuple[str, ...]
    prepared_root: Path
    command: str
    sources: str


def own_sources(config: Config, measures: Sequence[str]) -> str:
    """Return a hash that changes with the modules of the user's own that a run and its measures
    are made with. Each process reads a module once."""
    return digest([run_key(config), *(source_sha256(x, "measure") for x in measures if is_own(x))])


def work(order: Order, stop: StopSignals | None = None) -> None:
    """Do the unfinished parts of training and of the measures in `order`. Stopped training
    continues from its last checkpoint.

    Args:
        order: the work.
        stop: see `run.train.train`.

    Raises:
        StoppedError: training was stopped by a signal; a checkpoint is saved.
        LockedError: another process is at work on the run.
        ShapeshiftError: from training or a measure.
    """
    folder, root = RunFolder(order.folder), order.prepared_root
    refuse_link(folder.path)
    make_directory(folder.path)
    with locked(folder.lock):
        with writing(folder.path):
            for own in (folder.path, folder.measures, folder.run):
                tidy(own)
        open_in_place(folder.output, "wb").close()  # which is our standard output, perhaps
        config = order.config
        if own_sources(config, order.measures) != order.sources:
            raise ShapeshiftError(
                "a module of your own has changed since the command began; run the command again,"
                " which uses the new one"
            )
        missing = folder.missing(order.measures, config)
        if not missing:
            return
        text = corpus_fingerprint(fetch(config.data.corpus))
        folder.check_text(text, config)
        folder.check_start(config)
        if not has_begun(folder.run) and (start := start_of(config)):
            save(folder.start, start)
        directory = prepared_directory(config.data, root)
        checkpoint: str | None = None
        if TRAIN not in missing:
            if not has_begun(folder.run):
                raise ShapeshiftError(
                    "has results without weights; remove this folder, and the run is made again",
                    path=folder.path,
                )
            try:
                Run.create(folder.run, config).model()
            except ShapeshiftError:
                if not Run(folder.run).checkpoints.updates():
                    raise
                train(config, folder.run, Observer(), prepared_root=root, stop=stop)
        for measure in missing:
            began = time.monotonic()
            if measure != TRAIN:
                data = prepare(config.data, directory)
                results = take(measure, Run.create(folder.run, config), data)
            else:
                run = train(config, folder.run, Observer(), prepared_root=root, stop=stop)
                results = measure_training(run)
            checkpoint = checkpoint or hash_file(Run(folder.run).weights())
            record = MeasureRecord(
                measure=measure,
                version=__version__,
                command=order.command,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
                elapsed_s=round(time.monotonic() - began, 3),
                checkpoint=checkpoint,
                text=text,
                results=tuple(results),
                hardware=describe_hardware(choose_device(config.training.device)),
                options=position_options(config.position.scheme) if measure == TRAIN else {},
            )
            folder.write_record(record, config)


def attempt(order: Order) -> int:
    """Do `work` and return an exit status. If it failed or stopped, write the reason to
    `output.log`.

    Raises:
        StoppedError: see `work`. Signals are heeded in the main thread alone.
    """
    folder = RunFolder(order.folder)
    alone = threading.current_thread() is threading.main_thread()
    try:
        work(order, StopSignals(_SAME_SIGNAL_S) if alone else None)
    except LockedError:
        return BUSY
    except StoppedError as stopped:
        log(folder, str(stopped))
        raise
    except SystemExit as end:
        if end.code == STOPPED:  # outside of training
            log(folder, "stopped by SIGTERM; the same command goes on")
        raise
    except Exception as error:
        known = error if isinstance(error, ShapeshiftError) else out_of_memory(error)
        log(folder, f"error: {known}" if known else traceback.format_exc().rstrip())
        return 1
    return 0


def log(folder: RunFolder, text: str) -> None:
    """Add a line to `output.log`."""
    with writing(folder.output), open_in_place(folder.output, "a") as file:
        file.write(f"{text}\n")


def main() -> int:
    """Work on one run in its own process; see the module."""
    end_with_parent()
    # Programs that a measure has started end as well; training handles signals itself.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return attempt(Order.model_validate_json(sys.argv[1]))
    except StoppedError as stopped:
        return stopped.status


if __name__ == "__main__":
    sys.exit(main())
