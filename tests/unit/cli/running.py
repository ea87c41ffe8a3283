"""Runs a command as a user does, in this process, which has imported everything."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from shapeshift import cli

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
Ended = tuple[int, str, str]
"""Exit status, standard output and standard error."""


def program(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program on one thread; return how it ended and what it printed. The options are those
    of `subprocess.run`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = {**pipes, "env": ENVIRONMENT, "timeout": 300, **options}
    return subprocess.run([*map(str, command)], text=True, **options)


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, as `program` does."""
    return program(sys.executable, *arguments, **options)


def shapeshift(folder: Path, *arguments: str, stdin: bytes = b"", terminal: bool = False) -> Ended:
    """Run a command; return its exit status and what it printed. With `terminal`, a person types
    standard input."""
    typed = io.TextIOWrapper(io.BytesIO(stdin))
    typed.isatty = lambda: terminal
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["shapeshift", *arguments])
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(threading, "excepthook", threading.excepthook)  # is put back afterwards
        with pytest.raises(SystemExit) as ended:
            cli.main()
    code = ended.value.code
    if isinstance(code, str):  # which the interpreter would print
        err.write(code + "\n")
        code = 1
    return int(code or 0), out.buffer.getvalue().decode(), err.getvalue()
