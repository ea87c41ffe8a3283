"""Files from the web: whole or not at all, resumed after a cut, known by their SHA-256; and
archives, unpacked without a step outside of their folder.

    NAME                the file
    NAME.sha256         its SHA-256, in the form of `sha256sum`, pinned by the first download
    .NAME.partial       what has come so far
    .NAME.partial.tag   which version of the file on the server that is of
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much, where that is known."""

_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20  # to be left free on the disk
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def download(
    url: str,
    path: Path,
    sha256: str | None = None,
    on_progress: Progress | None = None,
    *,
    attempts: int = 4,
    wait_s: float = 2.0,
) -> Path:
    """Return the file, downloaded unless it is there.

    A connection that is cut is taken up again where it broke, by this call and by later ones, as
    long as the server has the same file and answers to ranges; else from the beginning.

    Args:
        url: over http or https.
        path: where the file shall be; its folder is made.
        sha256: of the file, hexadecimal. Without it, that of the first download is pinned.
        on_progress: told of the bytes.
        attempts: connections, one after the other; what has come counts them anew.
        wait_s: between two of them.

    Raises:
        ShapeshiftError: no network, no such file on the server, no room on the disk, or the file
            has another SHA-256 than it should have.
    """
    if not url.startswith(("http://", "https://")):
        raise ShapeshiftError(f"expected an http or https URL, got {url!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pinned = path.with_name(path.name + ".sha256")
    with exclusive(path):
        if not path.is_file():
            partial = path.with_name(f".{path.name}.partial")
            _complete(url, partial, path, on_progress, attempts, wait_s)
            _check(partial, path, _expected(sha256, pinned), url)
            tag_of(partial).unlink(missing_ok=True)
            partial.replace(path)
        found = _check(path, path, _expected(sha256, pinned), url)
        if not pinned.exists():
            pinned.write_text(f"{found}  {path.name}\n", encoding="utf-8")
    return path


def is_archive(path: Path) -> bool:
    """Return whether a file is one to be unpacked, by its name."""
    return path.name.endswith(_TAR)


def unpack(archive: Path, directory: Path, on_progress: Progress | None = None) -> list[Path]:
    """Unpack the files of a tar archive into a folder; each appears whole.

    Args:
        archive: compressed or not.
        directory: made if missing.
        on_progress: told of the files.

    Returns:
        The files.

    Raises:
        ShapeshiftError: the archive is damaged, the disk has no room, or a member is no plain file
            or lies outside of the folder. Nothing is unpacked then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names: list[PurePosixPath] = []
    try:
        with TemporaryDirectory(prefix=".unpack.", dir=directory) as scratch:
            with tarfile.open(archive) as members:
                for member in members:
                    if member.isdir():
                        continue
                    name = _inside(member, archive)
                    _require_space(Path(scratch), member.size, archive.name)
                    _write_member(members, member, Path(scratch) / name)
                    names.append(name)
                    if on_progress is not None:
                        on_progress(f"unpack {archive.name}", len(names), None)
            for name in names:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(scratch) / name).replace(directory / name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ShapeshiftError(
            f"not a tar archive, or a damaged one ({error}); remove it and fetch it again",
            path=archive,
        ) from error
    except OSError as error:
        raise ShapeshiftError(
            f"cannot be unpacked: {error.strerror or error}", path=archive
        ) from error
    return [directory / name for name in names]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time be at work on `path`; the others wait. Its folder exists."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        with lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except PermissionError as error:
        raise ShapeshiftError(f"cannot be written: {error.strerror}", path=lock) from error


def tag_of(partial: Path) -> Path:
    """Return the file that says of which version on the server a partial download is."""
    return partial.with_name(partial.name + ".tag")


class _CutError(Exception):
    """The connection ended before the file did."""


def _complete(
    url: str,
    partial: Path,
    path: Path,
    on_progress: Progress | None,
    attempts: int,
    wait_s: float,
) -> None:
    """Bring the whole file into `partial`."""
    left = attempts
    while True:
        before = _size(partial)
        try:
            _receive(url, partial, path, on_progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416 and before:  # the file on the server is shorter: another one
                partial.unlink()
                continue
            raise ShapeshiftError(_refused(url, path, error)) from error
        except (_CutError, OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno is not None and not _is_network(error):
                raise ShapeshiftError(f"cannot be written: {error.strerror}", path=path) from error
            left = attempts if _size(partial) > before else left
            left -= 1
            if left <= 0:
                raise ShapeshiftError(_unreachable(url, path, error, _size(partial))) from error
            time.sleep(wait_s)


def _receive(url: str, partial: Path, path: Path, on_progress: Progress | None) -> None:
    """Open one connection and append what comes."""
    have, tag = _size(partial), _read(tag_of(partial))
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    if have and tag:
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        if answer.headers.get_content_type() == "text/html":
            raise ShapeshiftError(
                f"{url} answered with a web page instead of the file (a confirmation, or a login?);"
                f" download it with a browser and put it at {path}"
            )
        begin = _begin(answer) if answer.status == 206 else 0
        if begin not in (0, have):
            raise _CutError(f"asked for byte {have}, got byte {begin}")
        length = answer.headers.get("Content-Length")
        total = None if length is None else begin + int(length)
        _require_space(partial.parent, (total or 0) - begin, path.name)
        tag_of(partial).write_text(_tag(answer), encoding="utf-8")
        done = begin
        with partial.open("ab" if begin else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if on_progress is not None:
                    on_progress(f"download {path.name}", done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise _CutError(f"{done:,} of {total:,} bytes came")


def _begin(answer: Any) -> int:
    """Return the first byte of a range, from `Content-Range: bytes 5-9/10`."""
    return int(answer.headers["Content-Range"].split()[1].split("-")[0])


def _tag(answer: Any) -> str:
    """Return what tells versions of the file apart; weak tags do not promise the same bytes."""
    tag = answer.headers.get("ETag") or ""
    if tag and not tag.startswith("W/"):
        return str(tag)
    return str(answer.headers.get("Last-Modified") or "")


def _check(file: Path, path: Path, expected: str | None, url: str) -> str:
    """Return the SHA-256; if it is not the expected one, raise, and remove what was downloaded."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if expected is not None and found != expected:
        if file != path:
            file.unlink()
            tag_of(file).unlink(missing_ok=True)
        raise ShapeshiftError(
            f"the SHA-256 is {found}, expected {expected}; remove the file and fetch {url} again,"
            " or change data.corpus.archives if the new file is the one you want",
            path=path,
        )
    return found


def _expected(sha256: str | None, pinned: Path) -> str | None:
    return sha256 or next(iter(_read(pinned).split()), None)


def _inside(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return a member's path; refuse links, devices, and paths that lead out of the folder."""
    name = PurePosixPath(member.name)
    if not member.isfile() or name.is_absolute() or ".." in name.parts:
        raise ShapeshiftError(
            f"the member {member.name!r} is not a plain file inside of the folder: refused",
            path=archive,
        )
    return name


def _write_member(members: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = members.extractfile(member)
    assert stream is not None  # a plain file
    with stream, path.open("wb") as file:
        shutil.copyfileobj(stream, file, _CHUNK)


def _require_space(directory: Path, num_bytes: int, what: str) -> None:
    free = shutil.disk_usage(directory).free
    if num_bytes + _SPARE_BYTES > free:
        raise ShapeshiftError(
            f"{what} needs {num_bytes / 1e9:.2f} GB more, but {free / 1e9:.2f} GB are free; make"
            " room, or set data.corpus.root to another disk",
            path=directory,
        )


def _refused(url: str, path: Path, error: urllib.error.HTTPError) -> str:
    return (
        f"{url} answered {error.code} {error.reason}; put the file at {path} yourself, or change"
        " data.corpus.archives"
    )


def _unreachable(url: str, path: Path, error: Exception, have: int) -> str:
    words = " ".join(str(getattr(error, "reason", error)).split())
    kept = f"; {have:,} bytes are kept and taken up again" if have else ""
    return (
        f"cannot fetch {url} ({words}){kept}; run it again when the network is there, or put the"
        f" file at {path} yourself"
    )


def _is_network(error: OSError) -> bool:
    return isinstance(error, urllib.error.URLError | ConnectionError | TimeoutError)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
