"""Files from the web: complete or not at all, fetched again after a cut, compared with their
hashes."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from shapeshift import __version__
from shapeshift.data.sources.folders import exclusive
from shapeshift.disk import make_directory, open_in_place, writing
from shapeshift.errors import ShapeshiftError, reason

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, how much of it is done, and of how much, where that is known."""

_CHUNK = 1 << 20
_BUSY = (408, 425, 429, 500, 502, 503, 504)  # tried again


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

    Args:
        url: over http or https.
        path: where to put the file; its folder is created if need be.
        sha256, md5: of the file, hexadecimal; None is not compared.
        on_progress: called with the number of bytes.
        attempts: failures, of the network or a busy server, after which it gives up.
        wait_s: before the second attempt, then twice as long each time.

    Raises:
        ShapeshiftError: no network, no such file on the server, no room on the disk, or the file
            has another hash than it should have.
    """
    if not url.startswith(("http://", "https://")):
        raise ShapeshiftError(f"expected an http or https URL, got {url!r}")
    with writing(path):
        make_directory(path.parent)
    with exclusive(path):
        if path.is_file():
            _compare(path, path, url, sha256, md5)
            return path
        partial = path.with_name(f".{path.name}.partial")
        try:
            _fetch(url, partial, path, on_progress, attempts, wait_s)
            _compare(partial, path, url, sha256, md5)
            with writing(path):
                partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
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


def _fetch(
    url: str,
    partial: Path,
    path: Path,
    on_progress: Progress | None,
    attempts: int,
    wait_s: float,
) -> None:
    for failures in range(1, attempts + 1):
        try:
            with writing(path), open_in_place(partial, "wb") as file:
                _receive(url, file, path, on_progress)
            return
        except _RetryError as error:
            if failures == attempts:
                raise ShapeshiftError(
                    f"cannot fetch {url} ({error}); run it again later, or put the file at {path}"
                    " yourself"
                ) from error
            time.sleep(wait_s * 2 ** (failures - 1))


def _receive(url: str, file: IO[bytes], path: Path, on_progress: Progress | None) -> None:
    """Write what one connection brings."""
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    try:
        request = urllib.request.Request(url, headers=headers)
        answer = urllib.request.build_opener(_Redirects).open(request, timeout=60)
        with answer:
            if answer.headers.get_content_type() == "text/html":
                raise ShapeshiftError(
                    f"{url} answered with a web page instead of the file (a confirmation, or a"
                    f" login?); download it with a browser and put it at {path}"
                )
            total = answer.length
            while chunk := answer.read(_CHUNK):
                with writing(path):
                    file.write(chunk)
                if on_progress is not None:
                    on_progress(f"download {path.name}", file.tell(), total)
    except urllib.error.HTTPError as error:
        answered = f"answered {error.code} {' '.join(str(error.reason).split())}"
        if error.code in _BUSY:
            raise _RetryError(answered) from error
        raise ShapeshiftError(
            f"{url} {answered}; put the file at {path} yourself, or change data.corpus.archives"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a bad URL
        raise _RetryError(reason(getattr(error, "reason", error))) from error
    if total is not None and file.tell() < total:
        raise _RetryError(f"{file.tell():,} of {total:,} bytes came")
    file.flush()
    os.fsync(file.fileno())


def _compare(file: Path, path: Path, url: str, sha256: str | None, md5: str | None) -> None:
    """Raise a `ShapeshiftError` if a file, which belongs at `path`, has another hash."""
    for name, expected in (("MD5", md5), ("SHA-256", sha256)):
        if expected is None:
            continue
        with file.open("rb") as stream:
            actual = hashlib.file_digest(stream, name.replace("-", "")).hexdigest()
        if actual != expected:
            raise ShapeshiftError(
                f"the {name} is {actual}, expected {expected}; remove the file and fetch {url}"
                " again, or, if the new file is the one you want, correct the hash in"
                " data.corpus.archives",
                path=path,
            )
