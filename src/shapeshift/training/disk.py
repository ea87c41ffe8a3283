"""Files that outlive a crash: written, flushed, then renamed, in this order.

A rename is atomic, but it reaches the disk in its own time, and so do the bytes of a file. Hence
fsync(file) → rename → fsync(directory): whoever finds the new name finds all bytes behind it.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PARTIAL = ".partial-"
"""Begins the name of what is not finished, or not quite deleted. Nothing reads such a file."""

_PIECE = 1 << 20
"""Bytes hashed and then written while they are still in the processor's cache."""


class Disk:
    """The operations that change what is on the disk, one system call each.

    All that a save does goes through these, so that a test can stop it at, or fail, each of them.
    """

    def create(self, path: Path) -> io.FileIO:
        """Open a file for writing, empty."""
        return io.FileIO(path, "w")

    def write(self, file: io.FileIO, data: memoryview) -> int:
        """Append bytes; return how many were taken, which may be fewer."""
        return file.write(data)

    def sync_file(self, file: io.FileIO) -> None:
        """Wait until the file's bytes are on the disk."""
        os.fsync(file.fileno())

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def mkdir(self, path: Path) -> None:
        """Make one directory; its parent exists, it does not."""
        path.mkdir()

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or a directory another name, in place of a file that had it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """Delete an empty directory."""
        path.rmdir()


@dataclass(frozen=True)
class Written:
    """What `write_file` wrote: how many bytes, and their SHA-256 in hexadecimal."""

    num_bytes: int
    sha256: str


def write_file(disk: Disk, path: Path, chunks: Iterable[bytes | memoryview]) -> Written:
    """Write a file and wait until it is on the disk, hashing on the way: nothing is read again."""
    digest, num_bytes = hashlib.sha256(), 0
    with disk.create(path) as file:
        for chunk in chunks:
            whole = memoryview(chunk).cast("B")
            for start in range(0, len(whole), _PIECE):
                piece = whole[start : start + _PIECE]
                digest.update(piece)
                num_bytes += len(piece)
                while piece:
                    piece = piece[disk.write(file, piece) :]
        disk.sync_file(file)
    return Written(num_bytes, digest.hexdigest())


def replace_file(disk: Disk, path: Path, chunks: Iterable[bytes | memoryview]) -> Written:
    """Write a file that appears complete or not at all, in place of one of the same name.

    Raises:
        OSError: if that fails; the old file is then as it was, unless only the last flush failed.
    """
    partial = path.with_name(PARTIAL + path.name)
    try:
        written = write_file(disk, partial, chunks)
        disk.rename(partial, path)
    except OSError:
        with suppress(OSError):
            disk.unlink(partial)
        raise
    disk.sync_directory(path.parent)
    return written


def make_directory(disk: Disk, path: Path) -> None:
    """Make a directory and those above it, if need be, and wait until they are on the disk."""
    if path.is_dir():
        return
    make_directory(disk, path.parent)
    disk.mkdir(path)
    disk.sync_directory(path.parent)


def remove_directory(disk: Disk, path: Path) -> None:
    """Delete a directory with all that is in it."""
    for child in path.iterdir():
        if child.is_dir() and not child.is_symlink():
            remove_directory(disk, child)
        else:
            disk.unlink(child)
    disk.rmdir(path)


def free_bytes(path: Path) -> int:
    """Return how many bytes may still be written where `path` is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
