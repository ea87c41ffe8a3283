"""Ending a command on SIGTERM and Ctrl-C in good order, wherever it happens to be."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from shapeshift.training.stopping import SIGNALS, StoppedError


class SignalledError(KeyboardInterrupt):
    """A signal has arrived; what it ends is as after Ctrl-C.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def ending_on_signals(remark: str = "") -> Iterator[None]:
    """Leave the block at a SIGTERM or SIGINT, say so in one line, and exit with 143 or 130.

    The block is left by an exception, so that it can put things in order. A second signal cuts that
    short; a third does what it does elsewhere. Training in this process takes the first one itself,
    to finish its update and save, see `training.stopping.StopSignals`. While a module is imported,
    which is most of a start, a signal ends the process at once: modules catch exceptions, and half
    imported they fail later.

    Args:
        remark: how to continue, half a sentence; empty where there is nothing to say.

    Raises:
        typer.Exit: after a signal.
    """
    received = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if _is_importing(frame):
            os._exit(128 + number)
        received += 1
        if received == 2:
            restore()
        raise SignalledError(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield
    except SignalledError as stopped:
        name = signal.Signals(stopped.number).name
        _say(f"stopped by {name}; {remark}" if remark else f"stopped by {name}")
        raise typer.Exit(128 + stopped.number) from None
    except StoppedError as stopped:
        _say(str(stopped))
        raise typer.Exit(stopped.status) from None
    finally:
        restore()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


def _say(text: str) -> None:
    from shapeshift.cli.progress import console  # not for the help, which shows at once

    console.print(text, soft_wrap=True)
