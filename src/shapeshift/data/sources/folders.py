"""Files and folders that several processes need: one process makes them, the others wait."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shapeshift.disk import make_directory, move, open_in_place, partial_directory, writing
from shapeshift.integrity import seal


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time work on `path`; the others wait. Its folder exists."""
    with open_in_place(path.with_name(f".{path.name}.lock"), "ab") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_once(folder: Path, is_built: Callable[[], bool], build: Callable[[Path], None]) -> None:
    """Build a folder, unless it is built: it appears complete or not at all, with the hashes of its
    files.

    Args:
        folder: where it belongs; those above it are made if need be.
        is_built: also asked again after another process was at work; may raise.
        build: fills an empty folder.
    """
    if is_built():
        return
    with writing(folder):
        make_directory(folder.parent)
        with exclusive(folder):
            if not is_built():
                with partial_directory(folder) as partial:
                    (new := partial / "new").mkdir()
                    build(new)
                    seal(new)
                    move(new, folder)
