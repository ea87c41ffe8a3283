"""One run trained by several processes, which torchrun starts: a cell on several GPUs.

As a program (`python -m shapeshift.experiments.group RUN SETTINGS …`) it is one of them.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from shapeshift.config import Config, load_config
from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.cell_folder import CellFolder, tail
from shapeshift.experiments.run import AVERAGE, Run, train
from shapeshift.training.parallel import join
from shapeshift.training.stopping import StoppedError, StopSignals, end_with_parent
from shapeshift.training.trainer import Silent

_LOOK_S = 0.2
_ERROR = "error: "


def train_in_group(
    config: Config,
    folder: CellFolder,
    num_processes: int,
    lock: int,
    prepared_root: Path,
    stop: StopSignals | None = None,
) -> Run:
    """Train a cell, or continue to, in so many processes on this machine; see `experiments.run`.

    What they print goes to the cell's `output.log`. They end when this process does, however that
    ends.

    Args:
        config: the cell's settings.
        folder: the cell's.
        num_processes: one for each GPU; they have to share an update evenly.
        lock: file descriptor of the folder's lock, which they keep until they have ended.
        prepared_root: see `experiments.run.train`.
        stop: entered while they train: a signal then ends them after an update.

    Raises:
        StoppedError: after a signal; a checkpoint is saved.
        ShapeshiftError: they did not finish, for a reason that they gave.
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone")
    command = [
        *(sys.executable, *torchrun, "--nproc-per-node", str(num_processes), "-m", "--"),
        *("shapeshift.experiments.group", str(folder.run), str(folder.write_settings(config))),
        *("--prepared", str(prepared_root), "--output", str(folder.output)),
    ]
    log = folder.path / "torchrun.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # never written: its end is ours, and tells all of it
            stdout=file,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": "1", **os.environ},  # torchrun's choice, which it warns of
            start_new_session=True,
            pass_fds=(lock,),
        )
    assert process.stdin is not None
    with stop or nullcontext(), process.stdin:
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(_LOOK_S)
                break
            if stop is not None and stop.received is not None:
                process.stdin.close()
    return _outcome(folder, status, stop, log)


def _outcome(folder: CellFolder, status: int, stop: StopSignals | None, log: Path) -> Run:
    """Return the run if it is finished, or say what became of it."""
    if status == 0 and (folder.run / AVERAGE).exists():
        return Run(folder.run)
    if stop is not None and stop.received is not None:
        if (folder.run / "config.yaml").exists():
            checkpoints = Run(folder.run).checkpoints
            if updates := checkpoints.updates():
                raise StoppedError(stop.received, updates[-1], checkpoints.path(updates[-1]))
        signal.raise_signal(stop.received)  # there is nothing to save yet
    errors = [line for line in tail(folder.output).splitlines() if line.startswith(_ERROR)]
    ended = f"the processes of the group ended with status {status}; see {folder.output} and {log}"
    raise ShapeshiftError(errors[0].removeprefix(_ERROR) if errors else ended)


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one of the processes; see the module. One that was stopped exits with 0 as well, so that
    torchrun lets the others save: what has started the group sees by the run how far it is."""
    parser = argparse.ArgumentParser(prog="python -m shapeshift.experiments.group")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("settings", help="YAML file of all its settings")
    parser.add_argument("--prepared", required=True, help="folder of prepared data")
    parser.add_argument("--output", required=True, help="file to print to")
    given = parser.parse_args(arguments)
    with open(given.output, "ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    end_with_parent()
    config = load_config(given.settings)
    # Asked by the end of standard input, and perhaps by a scheduler and by torchrun too.
    stop = StopSignals(grace_s=math.inf)
    try:
        with join(config.training) as parallel:
            train(
                config,
                given.run,
                Silent(),
                prepared_root=given.prepared,
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
