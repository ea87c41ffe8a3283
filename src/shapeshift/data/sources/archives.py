"""Files taken out of a tar or zip archive: those that are asked for, complete or not at all."""

from __future__ import annotations

import errno
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from shapeshift.data.sources.download import Progress
from shapeshift.data.sources.files import reading
from shapeshift.data.sources.folders import exclusive
from shapeshift.disk import make_directory, move, partial_directory, write_file, writing
from shapeshift.errors import ShapeshiftError, reason

_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_CHUNK = 1 << 20

# What tarfile, zipfile and the decompressors raise for damaged data and for headers that lie.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(ValueError, LookupError, ArithmeticError, RuntimeError, MemoryError, OSError),
)


def is_archive(path: Path) -> bool:
    """Return whether `unpack` reads a file, by its name."""
    return path.name.endswith(_ENDINGS)


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

    Raises:
        ShapeshiftError: the archive is damaged; a wanted member is not a plain file, leaves the
            folder, or is in it already; the disk is full.
    """
    with reading(archive), archive.open("rb") as file, exclusive(archive), writing(directory):
        make_directory(directory)
        with partial_directory(directory / archive.name) as scratch:
            files: dict[Path, Path] = {}  # what was written → where it belongs
            try:
                for number, (member, content) in enumerate(_members(file, archive), start=1):
                    name = str(PurePosixPath(member))
                    if wanted(name):
                        target, part = _target(directory, name), scratch / str(number)
                        if content is None or target in files.values():
                            raise ValueError(f"{member!r} is twice in it or not a plain file")
                        with content() as stream:
                            write_file(part, iter(partial(stream.read, _CHUNK), b""))
                        files[part] = target
                    if on_progress is not None:
                        on_progress(f"unpack {archive.name}", number, None)
            except _DAMAGED as error:
                # gzip and bz2 raise an OSError without a number; a zip file's wrong offset is
                # EINVAL. Any other is of the disk.
                if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                    raise
                raise ShapeshiftError(
                    f"cannot be unpacked: not an archive, or a damaged one ({reason(error)});"
                    " remove it and fetch it again, or unpack it yourself",
                    path=archive,
                ) from error
            for part, target in files.items():
                make_directory(target.parent)
                move(part, target)
    return list(files.values())


def _members(file: IO[bytes], archive: Path) -> Iterator[tuple[str, Callable[[], Any] | None]]:
    """Yield the name of each member, and what opens it before the next one is asked for; None for
    what is not a plain file, or encrypted."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(file) as zipped:
            for info in zipped.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0 from systems without such kinds
                is_plain = kind in (0, stat.S_IFREG) and not info.is_dir()
                is_plain = is_plain and not info.flag_bits & 1
                yield info.filename, partial(zipped.open, info) if is_plain else None
        return
    with tarfile.open(fileobj=file) as tar:
        for member in tar:
            if member.size < 0:  # tarfile would go back to it for ever
                raise tarfile.ReadError(f"a file of {member.size} bytes")
            is_plain = member.isfile() and not member.issparse()
            yield member.name, partial(tar.extractfile, member) if is_plain else None
        stream: Any = tar.fileobj
        while stream.read(_CHUNK):  # the checksum comes last
            pass


def _target(directory: Path, name: str) -> Path:
    target = directory / name
    if os.path.lexists(target):
        raise ShapeshiftError("is in the way of a file to be unpacked; remove it", path=target)
    if not target.resolve().is_relative_to(directory.resolve()):
        raise ValueError(f"{name!r} leaves the folder")
    return target


def find_prefixes(path: Path, languages: tuple[str, str], folder: Path) -> list[str]:
    """Return what a path names, without the ending of a language; an archive is unpacked.

    Args:
        path: parallel files without their ending, one of the two, or an archive that has both.
        languages: what the names of source and target files end with.
        folder: where an archive is unpacked, into a folder of its own.
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
