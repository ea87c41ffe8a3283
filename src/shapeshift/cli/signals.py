"""Ends a command cleanly on SIGTERM and Ctrl-C, at any point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from shapeshift.cli.output import notice
from shapeshift.training.stopping import StoppedError, heard_signals


class SignalledError(KeyboardInterrupt):
    """A signal has arrived; treated like Ctrl-C.

    Attributes:
        number: number of the signal.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def ending_on_signals(remark: str = "") -> Iterator[None]:
    """Leave the block at a SIGTERM or SIGINT, print one line, and exit with 143 or 130.

    The signal raises an exception in the block, so that it can clean up; a second signal interrupts
    the cleanup.
    Training handles the first signal itself: it finishes its update and saves, see
    `training.stopping.StopSignals`. During an import, which is most of the start, a signal ends the
    process at once, because modules may catch the exception and fail later, half imported.

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
        received += 1
        if received == 2:
            restore()
        raise SignalledError(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in heard_signals()}
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
