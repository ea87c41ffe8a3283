"""Reading files that end, and writing so that it survives a crash and stays in its folder.

A rename is atomic, but it reaches the disk in its own time, and so do the bytes of a file. Hence
fsync(file) → rename → fsync(directory): a reader that finds the new name finds all bytes behind it.

Three ways to write:
- `save`: a file in a folder of ours (a run, prepared data, results). A link in its place is
  replaced, never followed.
- `replacing`: a file that the user named. A link stays a link, and its target is replaced; a pipe
  or a device is written into.
- `open_in_place`: a log or a lock in a folder of ours.

Deleting never follows a link either. The callers refuse a folder of ours that is a link
(`refuse_link`): only the path that the user named may lead elsewhere.

A file is read whole by `read`, which alone decides whether it may be: a pipe would block, and a
device may never end.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from filelock import lock_descriptor

from shapeshift._system.errors import ShapeshiftError, out_of_memory

PARTIAL = ".partial-"
"""Begins the name of what is not finished, or not quite deleted. Nothing reads such a file."""


MAX_DOCUMENT = 1 << 26
"""Bytes of a document, such as JSON, that is read whole; none of ours is near it."""
MAX_FILE = 1 << 30
"""Bytes of a subword model, a figure or a log that is read whole."""

_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


class Disk:
    """The operations that change what is on the disk, one system call each.

    All that a save does goes through `DISK`, which a test replaces to stop it at, or fail, each of
    them.
    """

    write = staticmethod(io.FileIO.write)
    mkdir = staticmethod(Path.mkdir)
    rename = staticmethod(Path.replace)
    unlink = staticmethod(Path.unlink)
    rmtree = staticmethod(shutil.rmtree)

    def create(self, path: Path) -> io.FileIO:
        """Create a file for writing; an existing file or link of that name is replaced."""
        path.unlink(missing_ok=True)
        return io.FileIO(path, "x", opener=_open_own)

    def sync(self, path: Path) -> None:
        """Wait until a file's bytes, or the names in a directory, are on the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


DISK = Disk()


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file for reading; a link is followed.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe or a device.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "not a regular file", str(path))
    # Whatever has taken its place since then does not block.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT))


def limited(error: BaseException, path: Path) -> ShapeshiftError | None:
    """Return the error to show where a limit of the process was in the way of reading, which says
    nothing about what is at `path`, and None for an error of another kind."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return out_of_memory(error)
    message = f"cannot be read now: {error.strerror}; allow the process more (`ulimit -n`)"
    return ShapeshiftError(message, path=path)


def read(path: str | Path, most: int | None = MAX_DOCUMENT) -> bytes:
    """Return the content of a regular file of up to `most` bytes, or of any size if it is None.

    Raises:
        OSError: see `open_regular`, or the file is larger.
    """
    with open_regular(path) as file:
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read()


def refuse_irregular(folder: Path) -> None:
    """Raise a `ShapeshiftError` if a folder contains anything but regular files and folders.
    Another library reads these files, and would wait for ever on a pipe or a device."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise ShapeshiftError("not a regular file; remove it", path=path)


def refuse_link(folder: Path) -> None:
    """Raise a `ShapeshiftError` if a folder that we are about to change is a link."""
    if folder.is_symlink():
        raise ShapeshiftError(
            f"is a link to {os.readlink(folder)}, and nothing is written or deleted through it;"
            " put the folder itself here, or link the whole folder around it",
            path=folder,
        )


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file and wait until it is on the disk; return its SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with DISK.create(path) as file:
        for chunk in chunks:
            digest.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[DISK.write(file, rest) :]
        DISK.sync(path)
    return digest.hexdigest()


def move(source: Path, target: Path) -> None:
    """Rename a file or directory, and wait until the new name is on the disk."""
    if not source.is_symlink():
        DISK.sync(source)
    DISK.rename(source, target)
    DISK.sync(target.parent)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, and wait until they are on the disk."""
    if path.is_dir():
        return
    make_directory(path.parent)
    try:
        DISK.mkdir(path)
    except FileExistsError:
        if not path.is_dir():  # else another process was faster
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path)) from None
    DISK.sync(path.parent)


def remove(path: Path) -> None:
    """Delete a file, or a directory with its contents. A link is deleted, its target is not."""
    if path.is_dir() and not path.is_symlink():
        DISK.rmtree(path)
    else:
        DISK.unlink(path)


def tidy(folder: Path) -> None:
    """Remove the partial files that killed processes left in a folder. No other process may write
    there.

    Raises:
        ShapeshiftError: the folder is a link.
    """
    refuse_link(folder)
    for left in list(folder.glob(f"{PARTIAL}*")):
        remove(left)


@contextmanager
def writing(path: str | Path, remedy: str = "") -> Iterator[None]:
    """Turn an `OSError` of this block into a `ShapeshiftError`: `path` cannot be written."""
    try:
        yield
    except OSError as error:
        if lack := out_of_memory(error):
            raise lack from error
        message = f"cannot be written: {error.strerror or error}"
        raise ShapeshiftError("; ".join(filter(None, [message, remedy])), path=path) from error


def save(path: Path, data: str | bytes | memoryview, remedy: str = "") -> None:
    """Write a file of ours atomically, in place of an older file or a link; text as UTF-8. `remedy`
    is what the user can do about an error.

    Its folder is made if need be. Several processes may save the same file: one of them wins. After
    an error the old file is as it was, unless only the last flush failed.
    """
    content = data.encode() if isinstance(data, str) else data
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    with writing(path, remedy):
        make_directory(path.parent)
        try:
            write_file(partial, [content])
            DISK.rename(partial, path)
        except BaseException:
            with suppress(OSError):
                DISK.unlink(partial)
            raise
        DISK.sync(path.parent)


def open_in_place(path: Path, mode: str) -> IO[Any]:
    """Open a file that is written in place, such as a log or a lock. If its name is taken by a
    link, a pipe or a device, that is deleted first and never followed."""
    with writing(path):
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
        return open(path, mode, encoding=None if "b" in mode else "utf-8", opener=_open_own)


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[str]]:
    """Context: a text file that replaces an older one when the block ends without an exception;
    after an exception, the older file is untouched.

    The file is written to a temporary folder next to it, see `partial_directory`. Devices and named
    pipes, such as `/dev/stdout`, are written into. A link stays a link.

    Args:
        path: a file that the user named; its folder is made if need be.
    """
    final, partial = Path(os.path.realpath(path)), None
    with ExitStack() as stack:
        with writing(path):
            file = _open_irregular(Path(path))
            if file is None:
                make_directory(final.parent)
                partial = stack.enter_context(partial_directory(final)) / "new"
                file = _Named(partial, "x")
        file.shown = path
        raw = io.BufferedWriter(file)
        stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))
        yield stream
        stream.flush()
        if partial is not None:
            with writing(path):
                if final.exists():
                    shutil.copymode(final, partial)
                move(partial, final)


@contextmanager
def partial_directory(final: Path) -> Iterator[Path]:
    """Context: a temporary folder next to `final`, for content that will be renamed to `final`. It
    is deleted at the end; folders that killed processes left are deleted first."""
    for left in final.parent.glob(f"{PARTIAL}*-{escape(final.name)}"):
        with suppress(OSError), _locked(left):
            remove(left)
    folder = final.with_name(f"{PARTIAL}{token_hex(8)}-{final.name}")
    with ExitStack() as stack:
        try:  # before there is a folder: a signal may raise an exception at any point
            while not _claim(folder, stack):
                folder = final.with_name(f"{PARTIAL}{token_hex(8)}-{final.name}")
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _claim(folder: Path, stack: ExitStack) -> bool:
    """Create and lock a folder. Return False if another process took it for an abandoned one before
    it was locked."""
    folder.mkdir(0o700)
    try:
        stack.enter_context(_locked(folder))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks
        return True
    return folder.exists()


@contextmanager
def _locked(path: str | Path) -> Iterator[None]:
    """Hold the lock of a file or folder. Raises `OSError` if another process holds it, or if the
    file system has no locks."""
    handle = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT)
    try:
        if not lock_descriptor(handle, blocking=False):
            raise BlockingIOError
        yield
    finally:
        os.close(handle)


def free_bytes(path: Path) -> int:
    """Return the free disk space, in bytes, at `path`, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


class _Named(io.FileIO):
    """A file whose write errors name the path that the user gave."""

    shown: str | Path

    def write(self, data: Any) -> int:
        with writing(self.shown):
            return super().write(data)


def _open_irregular(path: Path) -> _Named | None:
    """Open an existing pipe or device; return None for a regular or missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    for stream in (sys.stdout, sys.stderr):  # also a regular file: it is in use under its name
        with suppress(OSError, ValueError, AttributeError):
            if os.path.samestat(status, os.fstat(stream.fileno())):
                stream.flush()
                return _Named(os.dup(stream.fileno()), "w")
    return None if stat.S_ISREG(status.st_mode) else _Named(os.open(path, os.O_WRONLY), "w")


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK, 0o666)
