"""Ending a command on SIGTERM and Ctrl-C in good order, wherever it happens to be."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from shapeshift.cli.progress import console
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
def ending_on_signals(remark: str) -> Iterator[None]:
    """Leave the block at a SIGTERM or SIGINT, say so in one line, and exit with 143 or 130.

    The block is left by an exception, so that it can put things in order. A second signal cuts that
    short; a third does what it does elsewhere. Training in this process takes the first one itself,
    to finish its update and save, see `training.stopping.StopSignals`.

    Args:
        remark: how to go on, half a sentence.

    Raises:
        typer.Exit: after a signal.
    """
    received = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal received
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
        _say(f"stopped by {signal.Signals(stopped.number).name}; {remark}")
        raise typer.Exit(128 + stopped.number) from None
    except StoppedError as stopped:
        _say(str(stopped))
        raise typer.Exit(stopped.status) from None
    finally:
        restore()


def _say(text: str) -> None:
    console.print(text, soft_wrap=True)
