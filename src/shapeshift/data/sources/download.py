"""Files from the web: complete or not at all, resumed after a cut, compared with their hashes.

NAME                     the file
.NAME.partial            the bytes that have been received
.NAME.partial.tag        the server's tag for the version of the file that they belong to
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from shapeshift import __version__
from shapeshift.data.sources.folders import exclusive
from shapeshift.disk import make_directory, open_in_place, save, writing
from shapeshift.errors import ShapeshiftError, reason

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, how much of it is done, and of how much, where that is known."""

_CHUNK = 1 << 20
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

    After a cut, or where the server is busy, the download continues where it broke, in this call
    and in later ones, if the server has the same file and supports ranges; otherwise it starts
    again from the beginning.

    Args:
        url: over http or https.
        path: where to put the file; its folder is created if need be.
        sha256, md5: of the file, hexadecimal; None is not compared.
        on_progress: called with the number of bytes.
        attempts: failures in a row, without a byte more, after which it gives up.
        wait_s: before the second attempt, then twice as long each time, up to a minute.

    Raises:
        ShapeshiftError: no network, no such file on the server, no room on the disk, or the file
            has another hash than it should have.
    """
    if not url.startswith(("http://", "https://")):
        raise ShapeshiftError(f"expected an http or https URL, got {url!r}")
    with writing(path):
        make_directory(path.parent)
    with exclusive(path):
        file = path
        if not path.is_file():
            file = path.with_name(f".{path.name}.partial")
            _fetch(url, file, path, on_progress, attempts, wait_s)
        for name, expected in (("MD5", md5), ("SHA-256", sha256)):
            if expected is None:
                continue
            with file.open("rb") as stream:
                actual = hashlib.file_digest(stream, name.replace("-", "")).hexdigest()
            if actual != expected:
                if file != path:
                    file.unlink()
                    _tag_path(file).unlink(missing_ok=True)
                raise ShapeshiftError(
                    f"the {name} is {actual}, expected {expected}; remove the file and fetch"
                    f" {url} again, or, if the new file is the one you want, correct the hash in"
                    " data.corpus.archives",
                    path=path,
                )
        if file != path:
            with writing(path):
                _tag_path(file).unlink(missing_ok=True)
                file.replace(path)
    return path


class _RetryError(Exception):
    """Something that may work when tried again."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another scheme, except from http to https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.startswith((f"{req.type}:", "https:")):
            raise ShapeshiftError(
                f"{req.full_url} redirects to {newurl[:200]!r}, which is not followed: expected"
                " https; download the file yourself, or change data.corpus.archives"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a bad URL
        raise _RetryError(reason(getattr(error, "reason", error))) from error


def _fetch(
    url: str,
    partial: Path,
    path: Path,
    on_progress: Progress | None,
    attempts: int,
    wait_s: float,
) -> None:
    """Bring the whole file into `partial`, over as many connections as it takes."""
    with writing(path), open_in_place(partial, "ab") as file:
        most, failures = file.tell(), 0
        while True:
            try:
                return _receive(url, file, path, on_progress)
            except _RetryError as error:
                num_bytes = file.tell()
                failures = 1 if num_bytes > most else failures + 1
                most = max(num_bytes, most)
                if failures >= attempts:
                    kept = f"; the next try continues after {num_bytes:,} bytes" * bool(num_bytes)
                    raise ShapeshiftError(
                        f"cannot fetch {url} ({error}){kept}; run it again later, or put the file"
                        f" at {path} yourself"
                    ) from error
                time.sleep(min(wait_s * 2 ** (failures - 1), _MAX_WAIT_S))


def _receive(url: str, file: IO[bytes], path: Path, on_progress: Progress | None) -> None:
    """Open one connection and append what comes to the partial file."""
    tag_path = _tag_path(Path(file.name))
    tag = tag_path.read_text().strip() if tag_path.is_file() else ""
    with _open(url, path, file.tell() if tag else 0, tag, tag_path) as answer:
        if answer.headers.get_content_type() == "text/html":
            raise ShapeshiftError(
                f"{url} answered with a web page instead of the file (a confirmation, or a login?);"
                f" download it with a browser and put it at {path}"
            )
        if answer.status == 206:
            sent = answer.headers.get("Content-Range", "")
            if not sent.startswith(f"bytes {file.tell()}-") or _tag(answer) not in ("", tag):
                tag_path.unlink()  # the next attempt asks for the whole file
                raise _RetryError(f"the server sent another part than asked for, {sent}")
        else:
            file.seek(0)  # before the new tag is saved: these bytes belong to the old one
            file.truncate()
            save(tag_path, _tag(answer))
        total = None if answer.length is None else file.tell() + answer.length
        try:
            while chunk := _read(answer):
                file.write(chunk)
                if on_progress is not None:
                    on_progress(f"download {path.name}", file.tell(), total)
        finally:
            file.flush()
            os.fsync(file.fileno())
    if total is not None and file.tell() < total:
        raise _RetryError(f"{file.tell():,} of {total:,} bytes came")


def _open(url: str, path: Path, have: int, tag: str, tag_path: Path) -> Any:
    """Ask for the file, or for what comes after the first `have` bytes of the version `tag`."""
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    try:
        with _network():
            request = urllib.request.Request(url, headers=headers)
            return urllib.request.build_opener(_Redirects).open(request, timeout=60)
    except _RetryError as error:
        if not isinstance(error.__cause__, urllib.error.HTTPError):
            raise
        code = error.__cause__.code
        if code == 416:  # the file on the server is shorter: another one
            tag_path.unlink(missing_ok=True)
        if code in _BUSY or (code == 416 and have):
            raise _RetryError(f"answered {code} {error}") from error
        raise ShapeshiftError(
            f"{url} answered {code} {error}; put the file at {path} yourself, or change"
            " data.corpus.archives"
        ) from error


def _read(answer: Any) -> bytes:
    with _network():
        return bytes(answer.read(_CHUNK))


def _tag(answer: Any) -> str:
    """Return the tag of the file's version; weak tags do not promise the same bytes."""
    tag = answer.headers.get("ETag") or ""
    if tag and not tag.startswith("W/"):
        return str(tag)
    return str(answer.headers.get("Last-Modified") or "")


def _tag_path(partial: Path) -> Path:
    return partial.with_name(partial.name + ".tag")
