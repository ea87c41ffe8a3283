"""Runs each run of some grids once, also if other commands work on the same runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import make_directory
from shapeshift._system.hashes import digest
from shapeshift._system.locks import is_locked
from shapeshift.data.config import FilesCorpus
from shapeshift.data.corpora import corpus_fingerprint
from shapeshift.run.folder import Run
from shapeshift.run.identity import how_to_score
from shapeshift.run.measures import TRAIN
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun, with_training
from shapeshift.study.launchers import Job, Launcher, RefusedError, Slurm, num_threads
from shapeshift.study.results import check_alike
from shapeshift.study.work import BUSY, STOPPED, Order, log, own_sources

Failed = list[tuple[PlannedRun, str]]
"""Runs that failed, and the last lines of each."""


class State(StrEnum):
    """State of a run. `ELSEWHERE`: another runner works on it. `STOPPING`: it was asked to stop and
    can continue later."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"


Changed = Callable[[PlannedRun, State, str | None, dict[str, float]], object]
"""Receives a run, what is happening to it, the measure that is not done, and how far training is,
see `RunFolder.progress`."""


def run_all(
    runs: Iterable[PlannedRun],
    root: Path,
    launcher: Launcher,
    *,
    prepared_root: Path = Path("prepared"),
    changed: Changed = lambda *_: None,
    poll_s: float = 1.0,
    command: str = "",
) -> Failed:
    """Do what is not yet done for `runs`: training, and their measures. Return what failed.

    A run that is finished is not run again; one that was stopped goes on; one that fails does not
    stop the others. A job that SLURM stops, at its time limit or for others, is submitted again if
    it has come further. A run that another runner is at work on is waited for, and taken over if
    that runner ends without finishing it. When the launcher refuses a run while others are running,
    as many as are running then are run at a time. When this function is left by an exception, such
    as `KeyboardInterrupt`, its jobs are stopped first.

    Args:
        runs: of one or of several grids, in the order that they are begun in. A run that several
            grids have is trained once and gets the measures of all of them; where they score it in
            different ways, one after the other.
        root: folder of the runs' folders.
        launcher: where to run them.
        prepared_root: see `run.train.train`.
        changed: called when a run's state changes, and about once a second while it is running.
        poll_s: seconds between two looks at the running runs.
        command: what the user typed, for the records.

    Raises:
        ShapeshiftError: a folder that was made from other text or settings, or runs that would be
            compared and are trained on different kinds of device or in different precisions.
        RefusedError: the launcher starts no run although none is running.
        StoppedError: a signal has ended training in this process; a checkpoint is saved.
    """
    runner = _Runner(root, launcher, changed, prepared_root, command, launcher.num_slots)
    runs = [*runs]
    here = not isinstance(launcher, Slurm)  # whose jobs run on other machines
    machines = (
        RunFolder(root / planned.key).machine(planned.config, here=here) for planned in runs
    )
    check_alike(runs, machines)
    for planned in _merged(runs):
        runner.enlist(planned)
    try:
        while runner.advance():
            time.sleep(poll_s)
    finally:
        runner.stop()
    return runner.failed


@dataclass
class _Runner:
    root: Path
    launcher: Launcher
    changed: Changed
    prepared_root: Path
    command: str
    room: int
    failed: Failed = field(default_factory=list)
    queue: list[PlannedRun] = field(default_factory=list)
    running: dict[int, tuple[PlannedRun, Job]] = field(default_factory=dict)  # by slot
    begun: dict[int, object] = field(default_factory=dict)  # slot → what was done before

    def enlist(self, planned: PlannedRun) -> None:
        """Queue a run, or count it as finished."""
        folder, config = self._folder(planned), planned.config
        folder.check_settings(config)
        Run.check(folder.run, config)
        folder.check_start(config)
        corpus = config.data.corpus
        if isinstance(corpus, FilesCorpus) and folder.record(TRAIN, config) is not None:
            text = None
            with suppress(ShapeshiftError):  # the text is not there
                text = corpus_fingerprint(corpus)
            if text is not None:
                folder.check_text(text, config)
        if self._is_finished(planned):
            self._report(planned, State.FINISHED)
        else:
            self.queue.append(planned)
            self._report(planned, State.WAITING)

    def advance(self) -> bool:
        """Poll running jobs and start new ones; return whether work is left."""
        for slot in list(self.running):
            self._look_after(slot)
        for planned in self.queue[:]:  # each once: a busy one goes to the end
            if not self._has_room(planned):
                break
            if any(planned.key == other.key for other, _ in self.running.values()):
                continue  # the same run, scored in another way
            self.queue.remove(planned)
            if self._is_finished(planned):  # by another runner
                self._report(planned, State.FINISHED)
            elif is_locked(self._folder(planned).lock):
                self._postpone(planned)
            else:
                self._start(planned)
        return bool(self.queue or self.running)

    def stop(self) -> None:
        """Stop all jobs."""
        for _, job in self.running.values():
            job.interrupt()
        for planned, _ in self.running.values():
            self._report(planned, State.STOPPING)
        for _, job in self.running.values():
            job.stop()

    def _folder(self, planned: PlannedRun) -> RunFolder:
        return RunFolder(self.root / planned.key)

    def _is_finished(self, planned: PlannedRun) -> bool:
        return not self._folder(planned).missing(planned.measures, planned.config)

    def _has_room(self, planned: PlannedRun) -> bool:
        runs = [planned, *(other for other, _ in self.running.values())]
        most = self.launcher.max_threads
        fits = most is None or sum(num_threads(each.config) for each in runs) <= most
        return len(self.running) < self.room and fits

    def _start(self, planned: PlannedRun) -> None:
        path = self._folder(planned).path
        make_directory(path)
        order = Order(
            folder=path.absolute(),
            config=planned.config,
            measures=planned.measures,
            prepared_root=self.prepared_root.absolute(),
            command=self.command,
            sources=own_sources(planned.config, planned.measures),
        )
        slot = min({*range(self.launcher.num_slots)} - self.running.keys())
        done = self._done(planned)
        try:
            job = self.launcher.start(order, slot)
        except RefusedError:
            if not self.running:
                raise
            self.queue.insert(0, planned)
            self.room = len(self.running)
            return
        self.running[slot], self.begun[slot] = (planned, job), done
        self._report(planned, State.RUNNING)
        self._look_after(slot)

    def _done(self, planned: PlannedRun) -> object:
        """Return what a run has: its checkpoints, and the measures that are missing."""
        folder = self._folder(planned)
        saved = {path.name for path in (folder.run / "checkpoints").glob("*")}
        return saved, folder.missing(planned.measures, planned.config)

    def _look_after(self, slot: int) -> None:
        planned, job = self.running[slot]
        status = job.poll()
        if status is None:
            self._report(planned, State.RUNNING)
            return
        del self.running[slot]
        is_stopped = status == STOPPED and isinstance(self.launcher, Slurm)
        if is_stopped and self._done(planned) != self.begun[slot]:
            self.queue.insert(0, planned)
            self._report(planned, State.WAITING)
        elif status == BUSY:
            self._postpone(planned)
        elif status == 0 and self._is_finished(planned):
            self._report(planned, State.FINISHED)
        else:
            lines = job.output() or self._folder(planned).last_lines()
            if status < 0:  # what was printed before does not say why
                lines.append(f"ended by signal {-status} ({signal.strsignal(-status)})")
            elif not lines:
                lines = [f"ended with status {status} and no message"]
                try:
                    log(self._folder(planned), lines[0])
                except ShapeshiftError as error:  # which kept the run from saying why
                    lines = [str(error)]
            self.failed.append((planned, "\n".join(lines)))
            self._report(planned, State.FAILED)

    def _postpone(self, planned: PlannedRun) -> None:
        self.queue.append(planned)
        self._report(planned, State.ELSEWHERE)

    def _report(self, planned: PlannedRun, state: State) -> None:
        folder = self._folder(planned)
        measure = next(iter(folder.missing(planned.measures, planned.config)), None)
        if state is State.FINISHED and any(planned.key == other.key for other in self.queue):
            state = State.WAITING  # to be scored in another way
        self.changed(planned, state, measure, folder.progress())


def _merged(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Merge runs with the same key and scoring into the first one, with the measures of all. It
    keeps as many checkpoints as any of them asks for, because a measure may need them."""
    merged: dict[tuple[str, str], PlannedRun] = {}
    keep: dict[str, int] = {}
    for planned in runs:
        name = planned.key, digest(how_to_score(planned.config))
        first = merged.setdefault(name, planned)
        merged[name] = replace(
            first, measures=tuple(dict.fromkeys(first.measures + planned.measures))
        )
        keep[planned.key] = max(keep.get(planned.key, 0), planned.config.training.keep_checkpoints)
    return [
        replace(planned, config=with_training(planned.config, keep_checkpoints=keep[planned.key]))
        for planned in merged.values()
    ]
