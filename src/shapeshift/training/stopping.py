"""Ending a run in good order on SIGTERM and Ctrl-C, and when what started it is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedError(Exception):
    """A signal has ended training, which has saved a checkpoint.

    Attributes:
        number: of the signal.
        update: the last one that was done.
        path: the checkpoint.
    """

    def __init__(self, number: int, update: int, path: Path):
        super().__init__(
            f"stopped by {signal.Signals(number).name} after update {update}, saved in {path}; the"
            " same command goes on from there"
        )
        self.number = number
        self.update = update
        self.path = path

    @property
    def status(self) -> int:
        """The exit status that a shell gives to a process which this signal has ended."""
        return 128 + self.number


class StopSignals:
    """Takes note of the first SIGTERM or SIGINT while it is entered; a second one does what it does
    elsewhere, at once. To be entered in the main thread.

    Args:
        grace_s: a signal that comes so soon after the first one is taken for the same: torchrun
            passes on what SLURM, for one, sends to every process itself.
    """

    def __init__(self, grace_s: float = 0.0):
        self.received: int | None = None
        self._grace_s = grace_s
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._since = number, time.monotonic()
            if not self._grace_s:
                self._restore()  # a second one need not wait for Python to take notice
        elif time.monotonic() - self._since >= self._grace_s:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Have SIGTERM sent to this process when its standard input closes, which happens when the
    process that holds the other end does so or is gone."""

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock the end of the process would wait for
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
