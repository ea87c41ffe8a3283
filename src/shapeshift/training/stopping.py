"""Ends a run in good order on SIGTERM and Ctrl-C, and when the process that started it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def heard_signals() -> list[signal.Signals]:
    """Return the `SIGNALS` that this process does not ignore. A process that a script starts with
    `&` ignores SIGINT."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


class StoppedError(Exception):
    """A signal has ended training, which has saved a checkpoint of its last update.

    Attributes:
        status: the exit status that a shell gives to a process which this signal has ended.
    """

    def __init__(self, number: int, update: int, path: Path):
        super().__init__(
            f"stopped by {signal.Signals(number).name} after update {update}, saved in {path}; the"
            " same command goes on from there"
        )
        self.status = 128 + number


class StopSignals:
    """A context manager for the main thread that notes the first SIGTERM or SIGINT; a second one
    has its usual effect at once.

    Attributes:
        received: the first signal, or None.

    Args:
        grace_s: seconds after the first signal in which others are ignored: torchrun repeats to
            every process the signals that SLURM, for example, has sent to all of them.
    """

    def __init__(self, grace_s: float = 0.0):
        self.received: int | None = None
        self._grace_s, self._since, self._watched = grace_s, 0.0, -1
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if self._grace_s:  # nothing else may take the repeated signal for a second one
            self._watched = signal.set_wakeup_fd(-1)
        self._before = {number: signal.signal(number, self._note) for number in heard_signals()}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()
        if self._grace_s:
            signal.set_wakeup_fd(self._watched)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._since = number, time.monotonic()
            if not self._grace_s:
                self._restore()  # a second one acts at once, without waiting for Python
        elif time.monotonic() - self._since >= self._grace_s:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Send SIGTERM to this process when its standard input closes, as it does when the process that
    holds the other end closes it or ends."""

    def watch() -> None:
        while os.read(0, 1):  # sys.stdin has a lock, for which the process would wait at its end
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
