"""Ends a command cleanly on SIGTERM and Ctrl-C, at any point."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from shapeshift.cli.output import notice
from shapeshift.training.stopping import SIGNALS, StoppedError, heard_signals

_PATIENCE_S = 1.0
"""Seconds from a second signal until the process ends even if Python has not run its handler."""


class SignalledError(KeyboardInterrupt):
    """The signal `number` has arrived; treated like Ctrl-C."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def ending_on_signals(remark: str = "") -> Iterator[None]:
    """Leave the block at a SIGTERM or SIGINT, print one line, and exit with 143 or 130.

    The signal raises an exception in the block, so that it can clean up; a second signal interrupts
    the cleanup. Python runs the handlers between two of its own instructions alone: if a long
    computation of another library keeps it from that, the second signal ends the process.
    Training handles the first signal itself: it finishes its update and saves, see
    `training.stopping.StopSignals`. During an import, which is most of the start, a signal ends the
    process at once, because modules may catch the exception and fail later, half imported.
    A SIGHUP, as when the terminal closes, counts as a SIGTERM.

    Args:
        remark: how to continue, as part of a sentence, or empty.
    """
    received = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal received
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib."):
                os._exit(128 + number)
            frame = frame.f_back
        os.write(writing_end, _HEARD)
        received += 1
        if received == 2:
            restore()
        raise SignalledError(number)

    def hang_up(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # the kernel and the shell may both send one
        signal.raise_signal(signal.SIGTERM)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    reading_end, writing_end = os.pipe()
    os.set_blocking(writing_end, False)
    threading.Thread(target=_end_unheard, args=[reading_end], daemon=True).start()
    watched = signal.set_wakeup_fd(writing_end, warn_on_full_buffer=False)
    before = {number: signal.signal(number, note) for number in heard_signals()}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by `nohup`
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    except SignalledError as stopped:
        name = signal.Signals(stopped.number).name
        notice(f"stopped by {name}; {remark}" if remark else f"stopped by {name}")
        raise typer.Exit(128 + stopped.number) from None
    except StoppedError as stopped:
        notice(str(stopped))
        raise typer.Exit(stopped.status) from None
    finally:
        restore()
        signal.set_wakeup_fd(watched)
        os.close(writing_end)


_HEARD = b"\0"
"""Follows the numbers of signals whose handler has run, in the pipe that `_end_unheard` reads."""


def _end_unheard(reading_end: int) -> None:
    """End the process at a second signal if Python does not handle it in time. Python's own
    handler, in C, writes the numbers of signals into the pipe.
    """
    received, unheard = 0, b""
    try:
        while byte := os.read(reading_end, 1):
            if byte == _HEARD:
                unheard = b""
            elif byte[0] in SIGNALS:
                received, unheard = received + 1, byte
            if (
                received > 1
                and unheard
                and not select.select([reading_end], [], [], _PATIENCE_S)[0]
            ):
                os._exit(128 + unheard[0])
    finally:
        os.close(reading_end)
