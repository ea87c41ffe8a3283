"""Runs the cells of grids: each once, wherever they have been started before."""

from __future__ import annotations

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
from shapeshift.run.record import CellFolder
from shapeshift.study.grid import Cell
from shapeshift.study.launchers import Job, Launcher, RefusedError, Slurm, num_threads
from shapeshift.study.results import check_alike
from shapeshift.study.work import BUSY, Order

Failed = list[tuple[Cell, str]]
"""Cells that failed, and the last lines of each."""


class State(StrEnum):
    """What is happening to a cell. `ELSEWHERE`: another runner is at work on it. `STOPPING`: it was
    asked to end, and will go on another time."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"


Changed = Callable[[Cell, State, str | None, dict[str, float]], object]
"""Receives a cell, what is happening to it, the step that is not done, and how far training is, see
`CellFolder.progress`."""


def run_cells(
    cells: Iterable[Cell],
    root: Path,
    launcher: Launcher,
    *,
    prepared_root: Path = Path("prepared"),
    changed: Changed = lambda *_: None,
    poll_s: float = 1.0,
    command: str = "",
) -> Failed:
    """Do what is not yet done for `cells`: training, and their measures. Return what failed.

    A cell that is finished is not run again; one that was stopped goes on; one that fails does not
    stop the others. A cell that another runner is at work on is waited for, and taken over if that
    runner ends without finishing it. When the launcher refuses a cell while others are running, as
    many as are running then are run at a time. When this function is left by an exception, such as
    `KeyboardInterrupt`, its jobs are stopped first.

    Args:
        cells: of one or of several grids, in the order that they are begun in. A run that several
            grids have is trained once and gets the measures of all of them; where they score it in
            different ways, one after the other.
        root: folder of the cells' folders.
        launcher: where to run them.
        prepared_root: see `run.train.train`.
        changed: called when a cell's state changes, and about once a second while it is running.
        poll_s: seconds between two looks at the running cells.
        command: what the user typed, for the records.

    Raises:
        ShapeshiftError: a folder that was made from other text or settings, or runs that would be
            compared and are trained on different kinds of device or in different precisions.
        RefusedError: the launcher starts no cell although none is running.
        StoppedError: a signal has ended training in this process; a checkpoint is saved.
    """
    runner = _Runner(root, launcher, changed, prepared_root, command, launcher.num_slots)
    cells = [*cells]
    here = not isinstance(launcher, Slurm)  # whose jobs run on other machines
    machines = (CellFolder(root / cell.key).machine(cell.config, here=here) for cell in cells)
    check_alike(cells, machines)
    for cell in _merged(cells):
        runner.enlist(cell)
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
    queue: list[Cell] = field(default_factory=list)
    running: dict[int, tuple[Cell, Job]] = field(default_factory=dict)  # by slot

    def enlist(self, cell: Cell) -> None:
        """Put a cell into the queue, or count it as finished."""
        folder, config = self._folder(cell), cell.config
        Run.check(folder.run, config)
        folder.check_start(config)
        corpus = config.data.corpus
        if isinstance(corpus, FilesCorpus) and folder.record(TRAIN, config) is not None:
            text = None
            with suppress(ShapeshiftError):  # the text is not there
                text = corpus_fingerprint(corpus)
            if text is not None:
                folder.check_text(text, config)
        if self._is_finished(cell):
            self._report(cell, State.FINISHED)
        else:
            self.queue.append(cell)
            self._report(cell, State.WAITING)

    def advance(self) -> bool:
        """Look after the running jobs and start others; return whether anything is left to do."""
        for slot in list(self.running):
            self._look_after(slot)
        for cell in self.queue[:]:  # each once: a busy one goes to the end
            if not self._has_room(cell):
                break
            if any(cell.key == other.key for other, _ in self.running.values()):
                continue  # the same run, scored in another way
            self.queue.remove(cell)
            if self._is_finished(cell):  # by another runner
                self._report(cell, State.FINISHED)
            elif is_locked(self._folder(cell).lock):
                self._postpone(cell)
            else:
                self._start(cell)
        return bool(self.queue or self.running)

    def stop(self) -> None:
        """Stop all jobs."""
        for _, job in self.running.values():
            job.interrupt()
        for cell, _ in self.running.values():
            self._report(cell, State.STOPPING)
        for _, job in self.running.values():
            job.stop()

    def _folder(self, cell: Cell) -> CellFolder:
        return CellFolder(self.root / cell.key)

    def _is_finished(self, cell: Cell) -> bool:
        return not self._folder(cell).missing(cell.steps, cell.config)

    def _has_room(self, cell: Cell) -> bool:
        cells = [cell, *(other for other, _ in self.running.values())]
        most = self.launcher.max_threads
        fits = most is None or sum(num_threads(each.config) for each in cells) <= most
        return len(self.running) < self.room and fits

    def _start(self, cell: Cell) -> None:
        path = self._folder(cell).path
        make_directory(path)
        order = Order(
            folder=path.absolute(),
            config=cell.config,
            steps=cell.steps,
            prepared_root=self.prepared_root.absolute(),
            command=self.command,
        )
        slot = min({*range(self.launcher.num_slots)} - self.running.keys())
        try:
            job = self.launcher.start(order, slot)
        except RefusedError:
            if not self.running:
                raise
            self.queue.insert(0, cell)
            self.room = len(self.running)
            return
        self.running[slot] = cell, job
        self._report(cell, State.RUNNING)
        self._look_after(slot)

    def _look_after(self, slot: int) -> None:
        cell, job = self.running[slot]
        status = job.poll()
        if status is None:
            self._report(cell, State.RUNNING)
            return
        del self.running[slot]
        if status == BUSY:
            self._postpone(cell)
        elif status == 0 and self._is_finished(cell):
            self._report(cell, State.FINISHED)
        else:
            lines = self._folder(cell).last_lines() or job.output()
            message = "\n".join(lines) or f"ended with status {status} and no message"
            self.failed.append((cell, message))
            self._report(cell, State.FAILED)

    def _postpone(self, cell: Cell) -> None:
        self.queue.append(cell)
        self._report(cell, State.ELSEWHERE)

    def _report(self, cell: Cell, state: State) -> None:
        folder = self._folder(cell)
        step = next(iter(folder.missing(cell.steps, cell.config)), None)
        if state is State.FINISHED and any(cell.key == other.key for other in self.queue):
            state = State.WAITING  # to be scored in another way
        self.changed(cell, state, step, folder.progress())


def _merged(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell for each run and way to score it, the first, with the measures of all that
    have these, each once. A run keeps as many checkpoints as any of its cells asks for: a measure
    may need them."""
    merged: dict[tuple[str, str], Cell] = {}
    keep: dict[str, int] = {}
    for cell in cells:
        name = cell.key, digest(how_to_score(cell.config))
        first = merged.setdefault(name, cell)
        merged[name] = replace(first, steps=tuple(dict.fromkeys(first.steps + cell.steps)))
        keep[cell.key] = max(keep.get(cell.key, 0), cell.config.training.keep_checkpoints)
    return [_keeping(cell, keep[cell.key]) for cell in merged.values()]


def _keeping(cell: Cell, num_checkpoints: int) -> Cell:
    """Return the cell with another number of checkpoints that training keeps."""
    training = cell.config.training.model_copy(update={"keep_checkpoints": num_checkpoints})
    return replace(cell, config=cell.config.model_copy(update={"training": training}))
