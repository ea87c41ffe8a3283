"""The command in a process group of its own, and its end by SIGKILL.

Attempts are forked from one process that has imported the package, so that time goes into the work
and not into imports.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shapeshift.cli import main as shapeshift_main
from shapeshift.disk import Disk

OPERATIONS = (
    "create", "write", "sync_file", "sync_directory", "mkdir", "rename", "unlink", "rmtree"
)  # fmt: skip
"""Methods of `Disk`: all that is done to files."""

TIMEOUT_S = 300


def wrap_operations(wrapper: Callable[[Callable], Callable]) -> None:
    """Replace all operations on files in this process."""
    for name in OPERATIONS:
        setattr(Disk, name, wrapper(getattr(Disk, name)))


def kill_own() -> None:
    """End this process and all others of its group, as a power cut would."""
    os.killpg(0, signal.SIGKILL)
    time.sleep(TIMEOUT_S)  # the signal may take a moment to arrive


def kill(child: int) -> None:
    """End a process that was started here, and its group."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has not yet made a group of its own
        os.kill(child, signal.SIGKILL)


def start(
    folder: Path, output: Path, command: Sequence[str], prepare: Callable[[], None] | None = None
) -> int:
    """Run `shapeshift` in a new process group; return its number.

    Args:
        folder: to run in.
        output: a file for what it prints.
        command: its arguments.
        prepare: called in the new process first.
    """
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.chdir(folder)
    handle = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if prepare is not None:
        prepare()
    sys.argv = ["shapeshift", *command]
    status = 70
    try:
        shapeshift_main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def finish(child: int, output: Path) -> bool:
    """Wait for a process; return whether it was killed.

    Raises:
        SystemExit: it has failed.
    """
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"ended with {status}:\n{output.read_text(encoding='utf-8')}")
    return status == -signal.SIGKILL


def has_ended(child: int) -> bool:
    """Return whether a process is over, and leave it to `finish`."""
    return bool(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
