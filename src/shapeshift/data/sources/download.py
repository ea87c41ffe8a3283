"""Archives of parallel text: downloaded, compared with their hash, unpacked."""

from __future__ import annotations

import errno
import filecmp
import hashlib
import http.client
import os
import re
import tarfile
import time
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError, reason
from shapeshift._system.files import (
    make_directory,
    move,
    open_regular,
    partial_directory,
    write_file,
    writing,
)
from shapeshift.data.config import Archive
from shapeshift.data.sources.files import reading
from shapeshift.data.sources.folders import exclusive

T = TypeVar("T")
Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, how much of it is done, and of how much, where that is known."""

_PROGRESS_EVERY = 10_000
_CHUNK = 1 << 20
_MOST_UNPACKED = 1 << 30
_MOST_TIMES = 100
"""What is unpacked of an archive may have a gibibyte, or this many times the archive's size: text
is packed to about a quarter, and a few bytes can stand for a disk full of zeros."""
_ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")
_WAITS_S = (1, 2, 4)  # before another attempt


def watched(
    items: Iterable[T], stage: str, total: int | None, on_progress: Progress | None
) -> Iterator[T]:
    """Yield the items of a stage, and report its progress."""
    report, done = on_progress or (lambda *_: None), 0
    report(stage, done, total)
    for done, each in enumerate(items, start=1):
        yield each
        if done % _PROGRESS_EVERY == 0:
            report(stage, done, total)
    report(stage, done, done)


class _NetworkError(Exception):
    """A network error after which another attempt may succeed."""


def download(archive: Archive, folder: Path, on_progress: Progress | None = None) -> Path:
    """Return the file of an archive in a folder, downloaded unless it is there.

    Raises:
        ShapeshiftError: the file cannot be fetched or written, or has another hash.
    """
    path = folder / archive.file
    with writing(path):
        make_directory(folder)
    with exclusive(path), writing(path), partial_directory(path) as scratch:
        if path.exists():
            _compare(path, path, archive)
            return path
        part = scratch / "part"
        for wait_s in (*_WAITS_S, None):
            try:
                write_file(part, _receive(archive.url, path, on_progress))
                break
            except _NetworkError as error:
                if wait_s is None:
                    raise ShapeshiftError(
                        f"cannot fetch {archive.url} ({error}); run it again later, or put the file"
                        f" at {path} yourself"
                    ) from error
                time.sleep(wait_s)
        _compare(part, path, archive)
        move(part, path)
    return path


def _receive(url: str, path: Path, on_progress: Progress | None) -> Iterator[bytes]:
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            done, total = 0, answer.length
            while chunk := answer.read(_CHUNK):
                yield chunk  # an error of the disk is raised in the caller, not here
                done += len(chunk)
                if on_progress is not None:
                    on_progress(f"download {path.name}", done, total)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a bad URL
        raise _NetworkError(reason(error)) from error
    if total is not None and done < total:
        raise _NetworkError(f"{done:,} of {total:,} bytes came")


def _compare(file: Path, path: Path, archive: Archive) -> None:
    """Raise `ShapeshiftError` for `path` if a file does not have the expected hash."""
    algorithm, _, expected = archive.hash.partition(":")
    with open_regular(file) as stream:
        actual = hashlib.file_digest(stream, algorithm).hexdigest()
    if actual != expected:
        raise ShapeshiftError(
            f"the hash is {algorithm}:{actual}, expected {archive.hash}; remove the file and"
            f" download {archive.url} with a browser, or correct data.corpus.archive.hash",
            path=path,
        )


def unpack(archive: Path, folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Unpack files of an archive into a folder, which is created if missing; none appears until all
    are read. Links are left out, and so is what would leave the folder.

    Args:
        archive: a zip file, or a tar file, which may be compressed.
        folder: where to.
        wanted: whether a file is, by its path in the archive.

    Raises:
        ShapeshiftError: the archive is damaged, or unpacks to far more than it holds; a file cannot
            be written, or one of its name is there already and differs.
    """

    def is_wanted(name: str) -> bool:
        path = PurePosixPath(name)
        return wanted(str(path)) and not path.is_absolute() and ".." not in path.parts

    def refuse_size(unpacked: int) -> None:
        if unpacked > most:
            raise ShapeshiftError(
                f"unpacks to more than {most:,} bytes, {_MOST_TIMES} times its size; unpack it"
                " yourself if you trust it, and name the files",
                path=archive,
            )

    with reading(archive), open_regular(archive) as file:
        most = max(_MOST_UNPACKED, _MOST_TIMES * os.fstat(file.fileno()).st_size)
    with reading(archive), writing(folder):
        make_directory(folder)
        with exclusive(folder / archive.name), partial_directory(folder / archive.name) as scratch:
            try:
                if tarfile.is_tarfile(archive):
                    with tarfile.open(archive) as tar:
                        tar.extraction_filter = lambda member, _: member  # chosen here: see above
                        stream: Any = tar.fileobj
                        for member in tar:
                            refuse_size(member.offset_data + member.size)
                            if member.isfile() and is_wanted(member.name):
                                tar.extract(member, scratch, set_attrs=False)
                        while stream.read(_CHUNK):  # the checksum of what is compressed comes last
                            refuse_size(stream.tell())
                else:
                    with zipfile.ZipFile(archive) as zipped:
                        members = [x for x in zipped.infolist() if is_wanted(x.filename)]
                        refuse_size(sum(member.file_size for member in members))
                        zipped.extractall(scratch, members)
            except ShapeshiftError:
                raise
            except Exception as error:  # of tarfile, zipfile and four decompressors
                if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                    raise
                raise ShapeshiftError(
                    f"is no archive or damaged ({reason(error)}); fetch it again", path=archive
                ) from error
            parts = [path for path in scratch.rglob("*") if path.is_file()]
            files = [folder / part.relative_to(scratch) for part in parts]
            for part, target in zip(parts, files, strict=True):
                if target.exists() and not filecmp.cmp(part, target, shallow=False):
                    raise ShapeshiftError(
                        f"exists already and differs from the file of this name in {archive}, which"
                        " would be unpacked here; move it away, or remove it",
                        path=target,
                    )
            for part, target in zip(parts, files, strict=True):
                make_directory(target.parent)
                move(part, target)
    return files


def own_name(path: Path, paths: Sequence[Path]) -> str:
    """Return the name of a file without its endings; of several with one name, the second gets
    `name-2`."""
    name = path.name.partition(".")[0]
    named = dict.fromkeys(x.resolve() for x in paths if x.name.partition(".")[0] == name)
    number = [*named, path.resolve()].index(path.resolve())
    return f"{name}-{number + 1}" if number else name


def find_prefixes(
    path: Path, languages: tuple[str, str], folder: Path, paths: Sequence[Path] = ()
) -> list[str]:
    """Return the file prefixes (without a language ending) that a path names.

    Args:
        path: parallel files without their ending, one of the two, or an archive that has both.
        languages: what the names of source and target files end with.
        folder: where an archive is unpacked, into a folder of its own; see `own_name`.
        paths: all that are unpacked there.
    """
    ending = re.compile(rf"\.({'|'.join(map(re.escape, languages))})(\.gz)?$")
    if not path.is_file() or not (tarfile.is_tarfile(path) or zipfile.is_zipfile(path)):
        if path.is_file() and path.name.lower().endswith(_ARCHIVES):
            raise ShapeshiftError("is no archive or damaged; fetch it again", path=path)
        return [ending.sub("", str(path))]
    files = unpack(path, folder / own_name(path, paths), lambda name: bool(ending.search(name)))
    sides = Counter(ending.sub("", str(file)) for file in files)
    prefixes = [name for name, count in sides.items() if count == 2]
    if not prefixes:
        raise ShapeshiftError(
            f"has no two files that end in .{languages[0]} and .{languages[1]}", path=path
        )
    return prefixes
