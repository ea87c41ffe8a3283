"""Files taken out of a tar or zip archive: those that are asked for, complete or not at all."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from shapeshift.data.sources.download import Progress, exclusive
from shapeshift.disk import make_directory, move, partial_directory, write_file, writing
from shapeshift.errors import ShapeshiftError

_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".tar": lambda file: file,
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.bz2": bz2.open,
    ".tar.xz": lzma.open,
}
_CHUNK = 1 << 20
_MAX_RATIO = 100  # of the content's size to the archive's; text has 3 to 10
_MIN_LIMIT = 64 << 20

# What tarfile, zipfile and the decompressors raise for damaged data and for headers that lie.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(ValueError, LookupError, ArithmeticError, RuntimeError, MemoryError),
)


_Member = tuple[str, int, bool, Callable[[], IO[bytes]]]
"""Name, bytes of its content, whether it is a plain file that is not encrypted, and what opens it
before the next member is asked for."""


def is_archive(path: Path) -> bool:
    """Return whether `unpack` reads a file, by its name."""
    return path.name.endswith((*_DECOMPRESSORS, ".zip"))


def unpack(
    archive: Path,
    directory: Path,
    wanted: Callable[[str], bool],
    on_progress: Progress | None = None,
) -> list[Path]:
    """Put the wanted files of an archive into a folder.

    A tar archive is read to its end, because the checksum of a compressed one comes last. Nothing
    appears in the folder before that.

    Args:
        archive: of a name that `is_archive` accepts.
        directory: created if missing.
        wanted: whether a member is, by its name, a path relative to the folder.
        on_progress: called with the number of members read.

    Returns:
        The files.

    Raises:
        ShapeshiftError: the archive is damaged or expands without bounds; a wanted member is not a
            plain file, leaves the folder, or is in it already; the disk is full.
    """
    with exclusive(archive), writing(directory):
        make_directory(directory)
        with partial_directory(directory / archive.name) as scratch:
            files = _extract(archive, scratch, directory, wanted, on_progress)
            for source, target in files.items():
                make_directory(target.parent)
                move(source, target)
    return list(files.values())


def _extract(
    archive: Path,
    scratch: Path,
    directory: Path,
    wanted: Callable[[str], bool],
    on_progress: Progress | None,
) -> dict[Path, Path]:
    """Write the wanted members to `scratch`; return, for each file, where it belongs."""
    files: dict[Path, Path] = {}
    with _opened(archive) as members:
        for number, (member, num_bytes, is_plain, open_member) in enumerate(members, start=1):
            name = str(PurePosixPath(member))
            if wanted(name):
                target, part = directory / name, scratch / str(number)
                if os.path.lexists(target):
                    raise ShapeshiftError(
                        "is in the way of a file to be unpacked; remove it", path=target
                    )
                if not target.resolve().is_relative_to(directory.resolve()):
                    raise ValueError(f"{member!r} leaves the folder")
                if not is_plain or target in files.values():
                    raise ValueError(f"{member!r} is twice in it or not a plain file")
                with open_member() as content:
                    write_file(part, iter(partial(content.read, _CHUNK), b""))
                if part.stat().st_size != num_bytes:
                    raise ValueError(f"{member!r} has another size than the archive says")
                files[part] = target
            if on_progress is not None:
                on_progress(f"unpack {archive.name}", number, None)
    return files


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[_Member]]:
    """Open an archive; report what its readers raise as damage to it."""
    try:
        file = archive.open("rb")
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror}", path=archive) from error
    try:
        with file:
            limit = max(_MIN_LIMIT, _MAX_RATIO * os.fstat(file.fileno()).st_size)
            if archive.suffix == ".zip":
                yield _zip_members(file, limit)
            else:
                ending = next(x for x in _DECOMPRESSORS if archive.name.endswith(x))
                yield _tar_members(_ForwardReader(_DECOMPRESSORS[ending](file), limit))
    except (*_DAMAGED, OSError) as error:
        # gzip and bz2 raise an OSError without a number; a zip file's wrong offset is EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise ShapeshiftError(
            f"cannot be unpacked: not an archive, or a damaged or hostile one ({words}); remove it"
            " and fetch it again, or unpack it yourself",
            path=archive,
        ) from error


def _zip_members(file: BinaryIO, limit: int) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as members:
        if sum(info.file_size for info in members.infolist()) > limit:
            raise ValueError(f"expands to more than {limit:,} bytes")
        for info in members.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 from systems without such kinds
            is_plain = kind in (0, stat.S_IFREG) and not info.is_dir() and not info.flag_bits & 1
            yield info.filename, info.file_size, is_plain, partial(members.open, info)


def _tar_members(stream: _ForwardReader) -> Iterator[_Member]:
    with tarfile.TarFile(fileobj=cast(BinaryIO, stream)) as members:
        for info in members:
            opened = cast("Callable[[], IO[bytes]]", partial(members.extractfile, info))
            yield info.name, info.size, info.isfile() and not info.issparse(), opened
        if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile takes any bad header for the end
            raise tarfile.ReadError("it ends without an end mark")
        while stream.read(_CHUNK):  # the checksum comes last
            pass


class _ForwardReader:
    """The content of a tar archive, read forward only and up to a limit.

    Attributes:
        last: the bytes that the last call of `read` returned.
    """

    def __init__(self, stream: BinaryIO, limit: int):
        self._stream, self._limit, self._position, self.last = stream, limit, 0, b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _CHUNK:  # tarfile reads a header in a single call
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


def find_prefixes(path: Path, languages: tuple[str, str], folder: Path) -> list[str]:
    """Return what a path names, without the ending of a language; an archive is unpacked.

    Args:
        path: parallel files without their ending, one of the two, or an archive that has both.
        languages: what the names of source and target files end with.
        folder: where an archive is unpacked, into a folder of its own.

    Raises:
        ShapeshiftError: an archive that cannot be unpacked, or without two such files.
    """
    endings = tuple(f".{language}{packed}" for language in languages for packed in (".gz", ""))

    def prefix(name: str) -> str:
        return name.removesuffix(next((each for each in endings if name.endswith(each)), ""))

    if not is_archive(path):
        return [prefix(str(path))]
    files = unpack(path, folder / path.name.partition(".")[0], lambda name: name.endswith(endings))
    sides = Counter(prefix(str(file)) for file in files)
    prefixes = [name for name, count in sides.items() if count == 2]
    if not prefixes:
        raise ShapeshiftError(
            f"has no two files that end in .{languages[0]} and .{languages[1]}", path=path
        )
    return prefixes
