"""Standard input, output and error that may be closed or full.

Output that is lost is an error; notices on standard error that are lost are not.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from shapeshift.errors import ShapeshiftError


def open_standard_streams() -> None:
    """Make standard input, output and error usable.

    A closed one is opened on `/dev/null`, else the next file that is opened would take its number
    and our notices: input for writing and output for reading, so that using them is an error.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:  # not replaced by the program that calls us
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Notices(2, "w", closefd=False), sys.stderr)


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # What is still buffered is lost too: without this, its flush would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if isinstance(error, BrokenPipeError):
                raise
            raise ShapeshiftError(f"standard output cannot be written: {error.strerror}") from error


class _Notices(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return len(memoryview(data).cast("B"))


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """Return a text stream like the one before."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=raw.fileno() == 2 or raw.isatty() or "PYTHONUNBUFFERED" in os.environ,
    )
