"""A lock file that lets one process in at a time.

The lock is the kernel's (`flock`), not the existence of the file, so it is released when its holder
ends for any reason, and there are no stale locks.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import open_in_place, open_regular


class LockedError(ShapeshiftError):
    """Another process is at work there."""


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path`.

    During this check `locked` may fail in another process, which should then try again later.
    """
    try:
        with open_regular(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # else: no file yet, or no locks here, which `locked` reports
        return isinstance(error, BlockingIOError)
    return False


@contextmanager
def locked(path: Path, *, wait: bool = False, optional: bool = False) -> Iterator[None]:
    """Hold the lock at `path`; its folder exists.

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
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            message = "another process is at work here; wait for it"
            raise LockedError(message, path=path.parent) from error
        except OSError as error:
            if not optional:
                raise ShapeshiftError(
                    f"cannot be locked ({error.strerror}); name a folder on a file system with"
                    " locks",
                    path=path,
                ) from error
        yield
