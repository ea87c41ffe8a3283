"""A lock file that lets one process in at a time.

The lock is the system's (`flock`, and `LockFileEx` on Windows), not the existence of the file: it
is released when its holder ends for any reason, and there are no stale locks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import open_in_place, open_regular

if sys.platform != "win32":
    import fcntl


class LockedError(ShapeshiftError):
    """Another process holds the lock."""


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path`, which may be on a read-only disk.

    The check itself holds the lock for a moment, in which another process finds it taken and should
    try again later. Where locks can be shared, checks share it and do not see each other; a shared
    one needs no writing, which network file systems ask of a lock of one's own.
    """
    try:
        with open_regular(path) as file:
            if sys.platform == "win32":
                return not lock_descriptor(file.fileno(), blocking=False)
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:  # no file yet, or no locks here, which `locked` reports
        return False


@contextmanager
def locked(path: Path, *, wait: bool = False, optional: bool = False) -> Iterator[None]:
    """Hold the lock at `path`, whose folder must exist.

    Args:
        path: the lock file.
        wait: until it is free, instead of raising an error.
        optional: go on without a lock where the file system has none.

    Raises:
        LockedError: another process holds it.
        ShapeshiftError: the file cannot be made, or the file system has no locks.
    """
    with open_in_place(path, "a") as file:
        try:
            if not lock_descriptor(file.fileno(), blocking=wait):
                message = "another process is at work here; wait for it"
                raise LockedError(message, path=path.parent)
        except OSError as error:
            if not optional:
                raise ShapeshiftError(
                    f"cannot be locked ({error.strerror}); name a folder on a file system with"
                    " locks",
                    path=path,
                ) from error
        yield
