"""Files and folders that several processes need: one process makes them, the others wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from shapeshift._system.files import make_directory, move, partial_directory, writing
from shapeshift._system.hashes import seal
from shapeshift._system.locks import locked


def exclusive(path: Path) -> AbstractContextManager[None]:
    """Let one process at a time work on `path`, whose folder must exist; the others wait."""
    return locked(path.with_name(f".{path.name}.lock"), wait=True, optional=True)


def build_once(folder: Path, is_built: Callable[[], bool], build: Callable[[Path], None]) -> None:
    """Build a folder, or what a link leads to, with the hashes of its files: it appears complete.
    Folders above it are made. `is_built`, which may raise, is asked again after another process was
    at work; `build` fills an empty folder."""
    if is_built():
        return
    folder = folder.resolve()  # a link cannot be replaced by a folder
    with writing(folder):
        make_directory(folder.parent)
        with exclusive(folder):
            if not is_built():
                with partial_directory(folder) as partial:
                    (new := partial / "new").mkdir()
                    build(new)
                    seal(new)
                    move(new, folder)
