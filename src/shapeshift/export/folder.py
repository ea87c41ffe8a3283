"""The folder of an exported model, which appears when all of it is on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shapeshift.disk import Disk, make_directory, partial_directory, writing
from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import seal

REPORT = "export.json"
"""What was exported, and how the check came out."""


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to write `model/` into, which becomes `target`, with hashes of its files, at
    the end of the context; nothing is left if that is not reached.

    Raises:
        ShapeshiftError: `target` is not an empty folder, or the disk refuses.
    """
    target = target.absolute()
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise ShapeshiftError(
            "exists and is not an empty folder; name a new one with --output, or remove it",
            path=target,
        )
    with writing(target):
        make_directory(Disk(), target.parent)
    with writing(target), partial_directory(target) as partial:
        yield partial
        seal(partial / "model")
        (partial / "model").rename(target)
        Disk().sync_directory(target.parent)
