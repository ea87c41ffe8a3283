"""Standard streams that may be closed or full.

Lost output is an error; lost notices on standard error are not.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from shapeshift.errors import ShapeshiftError


def open_standard_streams() -> None:
    """Make standard input, output and error usable.

    A closed one is opened on `/dev/null`; otherwise the next file opened would take its number and
    receive our notices. Input is opened for writing and output for reading, so that using them is
    an error.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:  # not replaced by a calling program
        sys.stdout = _open(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _open(2, sys.stderr)


class _Stream(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            is_gone = isinstance(error, BrokenPipeError)
            if self.fileno() == 2 and not is_gone:
                return len(memoryview(data).cast("B"))
            # Discard what is still buffered: its flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if is_gone:
                raise
            raise ShapeshiftError(f"standard output cannot be written: {error.strerror}") from error


def _open(number: int, before: TextIO | None) -> TextIO:
    """Return a text stream with the encoding of the one before."""
    raw = _Stream(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=number == 2 or raw.isatty() or "PYTHONUNBUFFERED" in os.environ,
    )
