"""Files from the web: complete or not at all, resumed after a cut, identified by their SHA-256.

NAME                     the file
NAME.sha256              its SHA-256, in the form of `sha256sum`; see `pin`
.NAME.partial            what has come so far
.NAME.partial.tag        which version of the file on the server that is of
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import shutil
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shapeshift import __version__
from shapeshift.disk import Disk, make_directory, save, writing
from shapeshift.errors import ShapeshiftError

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much, where that is known."""

_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20  # to be left free on the disk
_BUSY = (408, 425, 429, 500, 502, 503, 504)  # tried again
_MAX_WAIT_S = 60.0


def download(
    url: str,
    path: Path,
    sha256: str | None = None,
    md5: str | None = None,
    on_progress: Progress | None = None,
    *,
    attempts: int = 4,
    wait_s: float = 2.0,
) -> Path:
    """Return the file, downloaded unless it is there.

    After a cut, or where the server is busy, the download goes on where it broke, in this call and
    in later ones, as long as the server has the same file and answers to ranges; else from the
    beginning.

    Args:
        url: over http or https.
        path: where the file shall be; its folder is made.
        sha256: of the file, hexadecimal; without it, the one that was pinned.
        md5: of the file, where no SHA-256 is published.
        on_progress: called with the number of bytes.
        attempts: failures in a row, without a byte more, after which it gives up.
        wait_s: before the second attempt, then twice as long each time; a server that asks for
            more (`Retry-After`) gets up to a minute.

    Raises:
        ShapeshiftError: no network, no such file on the server, no room on the disk, or the file
            has another hash than it should have.
    """
    if not url.startswith(("http://", "https://")):
        raise ShapeshiftError(f"expected an http or https URL, got {url!r}")
    pinned = path.with_name(path.name + ".sha256")
    with writing(path):
        make_directory(Disk(), path.parent)
    with exclusive(path):
        file, sha256 = path, sha256 or _pinned(pinned)
        if not path.is_file():
            file = path.with_name(f".{path.name}.partial")
            _complete(url, file, path, on_progress, attempts, wait_s)
        for name, expected in (("MD5", md5), ("SHA-256", sha256)):
            found = _hash(file, name.replace("-", ""))
            if expected not in (None, found):
                if file != path:
                    file.unlink()
                    tag_of(file).unlink(missing_ok=True)
                raise ShapeshiftError(
                    f"the {name} is {found}, expected {expected}; remove the file and fetch"
                    f" {url} again, or, if the new file is the one you want, remove {pinned.name}"
                    " and the hash in data.corpus.archives",
                    path=path,
                )
        if file != path:
            with writing(path):
                tag_of(file).unlink(missing_ok=True)
                file.replace(path)
    return path


def pin(path: Path) -> None:
    """Bind later downloads of a file, which is whole as far as can be known, to its SHA-256."""
    pinned = path.with_name(path.name + ".sha256")
    if not pinned.exists():
        save(pinned, f"{_hash(path, 'sha256')}  {path.name}\n")


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time work on `path`; the others wait. Its folder exists."""
    lock = path.with_name(f".{path.name}.lock")
    with writing(lock):
        file = open(lock, "ab", opener=_no_link)  # noqa: SIM115
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tag_of(partial: Path) -> Path:
    """Return the file that says of which version on the server a partial download is."""
    return partial.with_name(partial.name + ".tag")


def require_space(directory: Path, num_bytes: int, what: str) -> None:
    """Check that a disk has room.

    Raises:
        ShapeshiftError: it has not.
    """
    free = shutil.disk_usage(directory).free
    if num_bytes + _SPARE_BYTES > free:
        raise ShapeshiftError(
            f"{what} needs {num_bytes / 1e9:.2f} GB more, but {free / 1e9:.2f} GB are free; make"
            " room, or set data.corpus.root to another disk",
            path=directory,
        )


class _RetryError(Exception):
    """Something that may work when tried again, after `wait_s` at least."""

    def __init__(self, words: str, wait_s: float = 0.0):
        super().__init__(words)
        self.wait_s = wait_s


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another scheme, except from http to https."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in (req.type, "https"):
            raise ShapeshiftError(
                f"{req.full_url} redirects to {newurl[:200]!r}, which is not followed: expected"
                " https; download the file yourself, or change data.corpus.archives"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _complete(
    url: str,
    partial: Path,
    path: Path,
    on_progress: Progress | None,
    attempts: int,
    wait_s: float,
) -> None:
    """Bring the whole file into `partial`."""
    most, failures = _size(partial), 0
    while True:
        try:
            _receive(url, partial, path, on_progress)
            return
        except _RetryError as error:
            size = _size(partial)
            failures = 1 if size > most else failures + 1
            most = max(size, most)
            if failures >= attempts:
                kept = f"; {size:,} bytes are kept and taken up again" if size else ""
                raise ShapeshiftError(
                    f"cannot fetch {url} ({error}){kept}; run it again later, or put the file at"
                    f" {path} yourself"
                ) from error
            time.sleep(min(max(wait_s * 2 ** (failures - 1), error.wait_s), _MAX_WAIT_S))


def _receive(url: str, partial: Path, path: Path, on_progress: Progress | None) -> None:
    """Open one connection and append what comes."""
    tag = _read_tag(partial)
    have = _size(partial) if tag else 0
    with _open(url, path, partial, have, tag) as answer:
        if answer.headers.get_content_type() == "text/html":
            raise ShapeshiftError(
                f"{url} answered with a web page instead of the file (a confirmation, or a login?);"
                f" download it with a browser and put it at {path}"
            )
        try:
            begin, total = _extent(answer, have, tag)
        except ValueError as error:
            partial.unlink(missing_ok=True)  # the next attempt asks for the whole file
            raise _RetryError(f"the server sent {error}") from error
        require_space(partial.parent, (total or 0) - begin, path.name)
        with writing(path):
            if not begin:
                partial.unlink(missing_ok=True)  # before the tag: it is of another version
                save(tag_of(partial), _tag(answer).encode("latin-1", "replace"))
            with open(partial, "ab", opener=_no_link) as file:
                try:
                    while chunk := _read(answer):
                        file.write(chunk)
                        if on_progress is not None:
                            on_progress(f"download {path.name}", file.tell(), total)
                        if total is None:
                            require_space(partial.parent, 0, path.name)
                finally:
                    file.flush()
                    os.fsync(file.fileno())
    if total is not None and _size(partial) < total:
        raise _RetryError(f"{_size(partial):,} of {total:,} bytes came")


def _open(url: str, path: Path, partial: Path, have: int, tag: str) -> Any:
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    opener = urllib.request.build_opener(_Redirects)
    try:
        return opener.open(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and have:  # the file on the server is shorter: another one
                partial.unlink(missing_ok=True)
                raise _RetryError("the file on the server changed") from error
            words = f"answered {error.code} {_words(error.reason)}"
            if error.code in _BUSY:
                raise _RetryError(words, _seconds(error.headers.get("Retry-After"))) from error
        raise ShapeshiftError(
            f"{url} {words}; put the file at {path} yourself, or change data.corpus.archives"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _RetryError(_words(getattr(error, "reason", error))) from error
    except ValueError as error:  # of a host or a port, also in a redirect
        raise ShapeshiftError(f"{url} cannot be opened ({_words(error)}); correct it") from error


def _read(answer: Any) -> bytes:
    try:
        return bytes(answer.read(_CHUNK))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _RetryError(_words(error)) from error


def _extent(answer: Any, have: int, tag: str) -> tuple[int, int | None]:
    """Return the first byte that comes, and the size of the whole file where the server says it.

    Raises:
        ValueError: with the header that cannot be true.
    """
    length, numbers = answer.headers.get("Content-Length"), r"\d{1,18}"
    if length is not None and not re.fullmatch(numbers, length.strip(), re.ASCII):
        raise ValueError(f"the Content-Length {_words(length)!r}")
    num_bytes = None if length is None else int(length)
    if answer.status != 206:
        return 0, num_bytes
    sent = answer.headers.get("Content-Range", "")
    extent = re.fullmatch(rf"bytes ({numbers})-({numbers})/({numbers}|\*)", sent.strip(), re.ASCII)
    if extent is not None and _tag(answer) in ("", tag):
        begin, end = int(extent[1]), int(extent[2]) + 1
        total = None if extent[3] == "*" else int(extent[3])
        if begin == have < end <= (total or end) and num_bytes in (None, end - begin):
            return begin, total
    raise ValueError(f"the Content-Range {_words(sent)!r}, asked for byte {have:,} and on")


def _tag(answer: Any) -> str:
    """Return what tells versions of the file apart; weak tags do not promise the same bytes."""
    tag = answer.headers.get("ETag") or ""
    if tag and not tag.startswith("W/"):
        return str(tag)
    return str(answer.headers.get("Last-Modified") or "")


def _hash(file: Path, name: str) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, name).hexdigest()


def _pinned(pinned: Path) -> str | None:
    """Return the SHA-256 of the first download."""
    if not pinned.is_file():
        return None
    words = pinned.read_bytes()[:200].decode(errors="replace").split()
    if not words or not re.fullmatch("[0-9a-f]{64}", words[0]):
        raise ShapeshiftError("expected a SHA-256; remove the file", path=pinned)
    return words[0]


def _seconds(retry_after: str | None) -> float:
    """Return how long a server asks to wait, in seconds or until a date; 0 where it does not."""
    if retry_after:
        with suppress(ValueError, OverflowError):
            return float(retry_after)
        with suppress(ValueError, OverflowError):
            return parsedate_to_datetime(retry_after).timestamp() - time.time()
    return 0.0


def _words(error: object) -> str:
    """Return one line of what a server or the network says."""
    words = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return " ".join(words.split())[:200] or type(error).__name__


def _size(partial: Path) -> int:
    """Return the size of what has come; what is no regular file, such as a link, is removed."""
    try:
        status = partial.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(status.st_mode):
        partial.unlink()
        return 0
    return status.st_size


def _read_tag(partial: Path) -> str:
    tag = tag_of(partial)
    text = tag.read_bytes().decode("latin-1").strip() if tag.is_file() else ""
    return text if text.isprintable() else ""


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
