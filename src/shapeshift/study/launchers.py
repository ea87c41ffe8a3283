"""Launchers: run in this process, in subprocesses, on GPUs, or on a SLURM cluster."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

import torch

import shapeshift
from shapeshift._system.errors import ShapeshiftError, require
from shapeshift._system.files import open_in_place
from shapeshift._system.threads import num_cores
from shapeshift.config import Config
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.work import STOPPED, Order, attempt
from shapeshift.training.stopping import StoppedError

_GRACE_S = 60.0
"""How long a process that was asked to end may take, to finish an update and save."""

NARROW = 128
"""Models of at most this width are trained with one thread each on a CPU: two such runs next to
each other are done sooner than one after the other with two threads."""

THREADS = 4
"""Threads of a run of a wider model, if there are as many cores."""


def num_threads(config: Config) -> int:
    """Return the number of threads of a run on a CPU. The rounding of sums depends on it, so it
    depends only on the run and the machine, not on other runs."""
    return 1 if config.model.dim <= NARROW else min(THREADS, num_cores())


class RefusedError(ShapeshiftError):
    """A launcher cannot start a run, and may be able to when others have ended."""


class Job:
    """The work on one run, in progress. Subclasses override the methods that they need."""

    def poll(self) -> int | None:
        """Return the job's exit status, or `None` while it is running; see `study.work`."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Ask the job to end."""

    def stop(self) -> None:
        """Wait for the job to end; kill it if that takes too long."""

    def output(self) -> list[str]:
        """Return why the work did not end by itself, if that is not the end of `output.log`."""
        return []


class InProcess(Job):
    """Runs each run synchronously in this process, inside `poll`; for debugging."""

    num_slots, max_threads = 1, None

    def start(self, order: Order, slot: int) -> Job:
        """Return the job of a run."""
        self._order = order
        return self

    def poll(self) -> int:
        """Do the work of the run, and return its exit status."""
        return _attempt(self._order)


def _attempt(order: Order) -> int:
    """`attempt` in this process, with the threads of a run."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads(order.config))
    try:
        return attempt(order)
    finally:
        torch.set_num_threads(before)


class Subprocesses:
    """Runs each run in its own process, as many at a time as there are environments. They end when
    this process ends, even if it is killed.

    Args:
        environments: for each slot, the variables that differ from this process's; on a CPU those
            of OpenMP are added.
        max_threads: of all runs that run at a time, None if that does not matter.
    """

    def __init__(self, environments: Sequence[Mapping[str, str]], max_threads: int | None = None):
        self._environments = environments
        self.num_slots, self.max_threads = len(environments), max_threads

    @classmethod
    def on_cpu(cls, num_processes: int) -> Subprocesses:
        """Return a launcher of some runs at a time, whatever the number of cores."""
        return cls([{}] * num_processes)

    @classmethod
    def for_runs(cls, runs: Collection[PlannedRun]) -> Subprocesses:
        """Return a launcher for runs: one at a time on each GPU if they may use GPUs; otherwise as
        many as fit the cores."""
        wanted = {planned.config.training.device for planned in runs}
        if wanted <= {"auto", "cuda"} and torch.cuda.is_available():
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            devices = seen.split(",") if seen else [*map(str, range(torch.cuda.device_count()))]
            return cls([{"CUDA_VISIBLE_DEVICES": device.strip()} for device in devices])
        cores = num_cores()
        if any(num_threads(planned.config) > 1 for planned in runs):
            return cls([{}] * cores, cores)
        # Three runs on two cores go all at once: after two of them, the third would leave a core
        # idle. More than that share the cores in rounds of equal size.
        num_runs = len({planned.key for planned in runs})
        rounds = max(1, num_runs // cores)
        slots = max(cores, math.ceil(num_runs / rounds))
        return cls([{}] * slots)

    def start(self, order: Order, slot: int) -> Job:
        """Start the process of a run."""
        environment = self._environments[slot]
        if not environment:
            threads = num_threads(order.config)
            environment = {"OMP_NUM_THREADS": str(threads)}
            if threads > 1 and self.max_threads is None and threads * self.num_slots > num_cores():
                environment["OMP_WAIT_POLICY"] = "passive"  # idle threads leave the cores to others
        return _Process(order, environment)


class _Process(Job):
    def __init__(self, order: Order, environment: Mapping[str, str]):
        # -P: a file of the current folder hides no module of Python's; see `own_modules`.
        command = [sys.executable, "-P", "-m", "shapeshift.study.work", order.model_dump_json()]
        # It finds the package that this process runs, installed or not.
        paths = [str(Path(shapeshift.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "MPLBACKEND": "agg"}
        with open_in_place(RunFolder(order.folder).output, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # never written: it closes when this process ends
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **environment},
                start_new_session=True,  # Ctrl-C reaches us alone, and we ask it to end, once
            )

    def poll(self) -> int | None:
        status = self._process.poll()
        if status is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def interrupt(self) -> None:
        self._process.terminate()

    def stop(self) -> None:
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.poll()


class Slurm:
    """Submits each run as a job to a SLURM cluster, through submitit (the extra `slurm`).

    Args:
        directory: for submitit's files, on a disk that all nodes see, as the runs' folders.
        num_jobs: the most jobs at a time.
        parameters: of `submitit.AutoExecutor.update_parameters`, such as `timeout_min`,
            `slurm_partition`, `gpus_per_node` and `cpus_per_task`.
        cluster: `slurm`; submitit's `local` and `debug` run without a cluster.

    Raises:
        ShapeshiftError: submitit is not installed, there is no such cluster, or a parameter is
            wrong.
    """

    ONE = ("nodes", "tasks_per_node", "ntasks", "ntasks_per_node")
    """Parameters, also with `slurm_` before them, of which a run takes one."""

    def __init__(
        self, directory: Path, num_jobs: int, parameters: Mapping[str, Any], cluster: str = "slurm"
    ):
        submitit = require("slurm", "submitit")
        os.environ.setdefault("PYTHONSAFEPATH", "1")  # in the jobs, as -P in `_Process`
        self.num_slots, self.max_threads = num_jobs, None
        for name, value in parameters.items():
            if name.removeprefix("slurm_") in self.ONE and value != 1:
                raise ShapeshiftError(f"a run is one task of a job; leave {name}={value} out")
        try:
            self._executor = submitit.AutoExecutor(folder=str(directory / "%j"), cluster=cluster)
            self._executor.update_parameters(**parameters)
        # What submitit raises.
        except (NameError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise ShapeshiftError(f"submitit refuses the jobs: {_line(error)}") from error

    def start(self, order: Order, slot: int) -> Job:
        """Submit the job of a run.

        Raises:
            RefusedError: there are too many jobs, or no cluster; it says what `sbatch` printed.
        """
        try:
            with redirect_stderr(io.StringIO()):  # where submitit prints that, too
                job = self._executor.submit(attempt_in_job, order)
        except RuntimeError as error:  # the base of what submitit raises
            raise RefusedError(f"SLURM refuses the jobs: {_line(error)}") from error
        return _SlurmJob(job)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def attempt_in_job(order: Order) -> int:
    """`attempt` in a job of submitit: return `STOPPED` for what a signal ended.

    SLURM sends SIGTERM to what it preempts, and by submitit's wish SIGUSR2 before the time limit.
    The handlers of submitit, which this one replaces, ignore the first, and end the work in the
    middle of an update at the second.
    """

    def stop(number: int, frame: object) -> None:
        if number == signal.SIGTERM:
            sys.exit(128 + number)  # outside of training, which has a handler of its own
        signal.raise_signal(signal.SIGTERM)

    heard = signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        return _attempt(order)
    except (StoppedError, SystemExit):
        return STOPPED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _SlurmJob(Job):
    def __init__(self, job: Any):
        self._job, self._problem = job, ""

    def poll(self) -> int | None:
        if not self._job.done():
            return None
        try:
            return int(self._job.result())
        except (
            Exception
        ) as error:  # killed, cancelled, out of memory: submitit raises one of several
            self._problem = str(error)
            return 1

    def interrupt(self) -> None:
        with suppress(OSError):
            self._job.cancel(check=False)

    def output(self) -> list[str]:
        text = self._problem and (self._job.stderr() or self._problem)
        return str(text).splitlines()[-12:]


Launcher = InProcess | Subprocesses | Slurm
"""Where runs run. `num_slots` is how many jobs there may be at a time, and `max_threads` how many
threads they may have together, None if that does not matter; `start` begins the work on a run in a
slot, from 0, that no running job has."""
