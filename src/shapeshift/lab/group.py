"""One run trained by several processes, which torchrun starts: a cell on several GPUs.

As a program (`python -m shapeshift.lab.group CELL_FOLDER SETTINGS PREPARED_ROOT`) it is one of
them.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

from shapeshift.config import Config, load_config
from shapeshift.disk import open_in_place
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.cell_folder import CellFolder, tail
from shapeshift.lab.final import AVERAGE
from shapeshift.lab.locks import locked
from shapeshift.lab.run import Run
from shapeshift.lab.train import train
from shapeshift.training.observer import Observer
from shapeshift.training.parallel import LOST, join
from shapeshift.training.stopping import StoppedError, StopSignals, end_with_parent

_LOOK_S = 0.2
_GRACE_S = 40.0
"""How long the processes may take to finish an update and save, before torchrun ends them."""

_ERROR = "error: "


def train_in_group(
    config: Config,
    folder: CellFolder,
    num_processes: int,
    prepared_root: Path,
    stop: StopSignals | None = None,
) -> Run:
    """Train a cell, or continue to, in several processes on this machine; see `lab.train`.

    Their output goes to the cell's `output.log`. They save and end when this process ends for any
    reason, and hold the cell's `group.lock` until then.

    Args:
        config: the cell's settings.
        folder: the cell's.
        num_processes: one for each GPU; they have to share an update evenly.
        prepared_root: see `lab.train.train`.
        stop: entered while they train: a signal then ends them after an update.

    Raises:
        StoppedError: after a signal; a checkpoint is saved.
        ShapeshiftError: they did not finish, for a reason that they gave.
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone")
    command = [
        *(sys.executable, *torchrun, "--nproc-per-node", str(num_processes), "-m", "--"),
        *("shapeshift.lab.group", str(folder.path), str(folder.write_settings(config))),
        str(prepared_root),
    ]
    with open_in_place(folder.group_log, "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # never written: it closes when this process ends
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": "1", **os.environ},  # torchrun's choice, which it warns of
            start_new_session=True,
        )
    with stop or nullcontext():
        status = _wait(process, stop)
    return _outcome(folder, status, stop)


def _wait(process: subprocess.Popen[bytes], stop: StopSignals | None) -> int:
    """Return torchrun's exit status; on a signal, ask the processes to end."""
    asked: float | None = None
    assert process.stdin is not None
    with process.stdin as end:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_S)
            if stop is None or stop.received is None:
                continue
            if asked is None:
                end.close()
                asked = time.monotonic()
            elif time.monotonic() - asked > _GRACE_S:
                process.terminate()  # it passes this on, and kills those that are left 30 s later
                asked = math.inf  # once


def _outcome(folder: CellFolder, status: int, stop: StopSignals | None) -> Run:
    """Return the run if it is finished, or say what became of it."""
    errors = [line for line in tail(folder.output).splitlines() if line.startswith(_ERROR)]
    if status and errors:
        causes = [line for line in errors if LOST not in line]
        logs = f"; see {folder.output} and {folder.group_log}"
        raise ShapeshiftError((causes or [errors[0] + logs])[0].removeprefix(_ERROR))
    if stop is not None and stop.received is not None:
        if (folder.run / "config.yaml").exists():
            checkpoints = Run(folder.run).checkpoints
            if updates := checkpoints.updates():
                raise StoppedError(stop.received, updates[-1], checkpoints.path(updates[-1]))
        signal.raise_signal(stop.received)  # there is nothing to save yet
    if status == 0 and (folder.run / AVERAGE).exists():
        return Run(folder.run)
    raise ShapeshiftError(
        f"the processes that trained together ended with status {status}; see {folder.output} and"
        f" {folder.group_log}"
    )


def main() -> int:
    """Be one of the processes; see the module. One that was stopped exits with 0 as well, so that
    torchrun lets the others save: what has started the group sees by the run how far it is."""
    path, settings, prepared_root = map(Path, sys.argv[1:])
    folder = CellFolder(path)
    with open_in_place(folder.output, "ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    end_with_parent()
    # Asked by the end of standard input, and perhaps by a scheduler and by torchrun too.
    stop = StopSignals(grace_s=math.inf)
    try:
        config = load_config(settings)
        with locked(folder.group_lock, shared=True), join(config.training) as parallel:
            train(
                config,
                folder.run,
                Observer(),
                prepared_root=prepared_root,
                stop=stop,
                parallel=parallel,
            )
    except StoppedError:
        return 0
    except ShapeshiftError as error:
        print(f"{_ERROR}{error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
