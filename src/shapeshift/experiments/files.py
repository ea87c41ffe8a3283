"""Files that several processes may write at once: one of them wins, whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shapeshift.disk import PARTIAL, Disk, write_file


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears complete or not at all; its folder is made if need be.

    Raises:
        OSError: if that fails; a file of that name is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        write_file(Disk(), partial, [data])
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise
    Disk().sync_directory(path.parent)
