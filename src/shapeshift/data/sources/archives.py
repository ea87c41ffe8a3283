"""Files taken out of a tar archive: those that are asked for, complete or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from shapeshift.data.sources.download import Progress, exclusive, require_space
from shapeshift.disk import PARTIAL, Disk, make_directory, remove_directory, write_file, writing
from shapeshift.errors import ShapeshiftError

_OPENERS: dict[str, Callable[..., Any]] = {
    ".tar": open,
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.bz2": bz2.open,
    ".tar.xz": lzma.open,
}
_CHUNK = 1 << 20  # also the longest header: tarfile reads one in a single call
_MAX_MEMBERS = 100_000
_MAX_RATIO = 100  # of what comes out to the archive's size; text has 3 to 10
_MIN_LIMIT = 64 << 20

# What tarfile and the decompressors raise for damaged data. The last five: for headers that lie.
_DAMAGED = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, LookupError, ArithmeticError, RecursionError, MemoryError),
)


def is_archive(path: Path) -> bool:
    """Return whether a file is one to be unpacked, by its name."""
    return path.name.endswith(tuple(_OPENERS))


def unpack(
    archive: Path, directory: Path, wanted: Collection[str], on_progress: Progress | None = None
) -> list[Path]:
    """Put the wanted files of a tar archive into a folder.

    Other members are read, because the checksum of a compressed archive comes last, but written
    nowhere. Nothing appears in the folder before all of the archive has been read.

    Args:
        archive: compressed or not.
        directory: made if missing.
        wanted: names of members, as paths relative to the folder; the archive may lack some.
        on_progress: called with the number of members read.

    Returns:
        The files.

    Raises:
        ShapeshiftError: the archive is damaged or expands without bounds; a wanted member is not a
            plain file, or its place in the folder is taken or behind a link; the disk is full.
    """
    scratch = directory / f"{PARTIAL}{archive.name}"
    disk = Disk()
    with exclusive(archive), writing(directory):
        try:
            make_directory(disk, directory)
            if os.path.lexists(scratch):  # of a process that was killed
                remove_directory(disk, scratch)
            scratch.mkdir()
            files = _extract(archive, scratch, directory, wanted, on_progress)
            for source, target in files.items():
                make_directory(disk, target.parent)
                disk.rename(source, target)
                disk.sync_directory(target.parent)
        finally:
            if scratch.is_dir():
                remove_directory(disk, scratch)
    return list(files.values())


def _extract(
    archive: Path,
    scratch: Path,
    directory: Path,
    wanted: Collection[str],
    on_progress: Progress | None,
) -> dict[Path, Path]:
    """Write the wanted members to `scratch`; return, for each file, where it belongs."""
    files: dict[Path, Path] = {}
    with (
        _opened(archive) as stream,
        _damage(archive),
        tarfile.TarFile(fileobj=cast(BinaryIO, stream)) as members,
    ):
        for number, member in enumerate(members, start=1):
            if number > _MAX_MEMBERS:
                raise tarfile.ReadError(f"more than {_MAX_MEMBERS:,} members")
            name = PurePosixPath(member.name)
            if str(name) in wanted:
                target = _free_place(directory, name)
                if not member.isfile() or member.issparse() or target in files.values():
                    raise tarfile.ReadError(f"{member.name!r} is twice in it or not a plain file")
                require_space(scratch, member.size, str(target))
                part = scratch / str(number)
                _write(members, member, part)
                files[part] = target
            if on_progress is not None:
                on_progress(f"unpack {archive.name}", number, None)
        if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile takes any bad header for the end
            raise tarfile.ReadError("it ends without an end mark")
        while stream.read(_CHUNK):  # the checksum comes last
            pass
    return files


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = members.extractfile(member)
    assert content is not None  # a plain file
    with content:
        write_file(Disk(), path, iter(partial(content.read, _CHUNK), b""))


def _free_place(directory: Path, name: PurePosixPath) -> Path:
    """Return where a file belongs; refuse what is taken, or behind a link or a file."""
    for parent in reversed(name.parents):
        folder = directory / parent
        if parent.name and folder.is_symlink():
            raise ShapeshiftError(
                "is a link, through which no archive is unpacked; replace it by a folder",
                path=folder,
            )
    target = directory / name
    if os.path.lexists(target):
        raise ShapeshiftError("is in the way of a file to be unpacked; remove it", path=target)
    return target


@contextmanager
def _opened(archive: Path) -> Iterator[_Reader]:
    ending = next(ending for ending in _OPENERS if archive.name.endswith(ending))
    try:
        limit = max(_MIN_LIMIT, _MAX_RATIO * archive.stat().st_size)
        stream = _OPENERS[ending](archive, "rb")
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror}", path=archive) from error
    with stream:
        yield _Reader(stream, limit)


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk; those of gzip and bz2 have no number
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise ShapeshiftError(
            f"cannot be unpacked: not a tar archive, a damaged or a hostile one ({words}); remove"
            " it and fetch it again, or unpack it yourself",
            path=archive,
        ) from error


class _Reader:
    """An archive's content as tarfile reads it: forward only, and not without end.

    Attributes:
        last: what was read last.
    """

    def __init__(self, stream: BinaryIO, limit: int):
        self._stream, self._limit, self._position, self.last = stream, limit, 0, b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        self.last = self._stream.read(size)
        self._position += len(self.last)
        if self._position > self._limit:
            raise tarfile.ReadError(f"expands to more than {self._limit:,} bytes")
        return self.last

    def seek(self, position: int) -> None:
        if position < self._position:
            raise tarfile.ReadError("a member that begins before the one before it ends")
        while self._position < position and self.read(min(_CHUNK, position - self._position)):
            pass
