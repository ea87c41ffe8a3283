"""Files from the web: complete or not at all, compared with their hashes."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from shapeshift import __version__
from shapeshift.data.sources.folders import exclusive
from shapeshift.disk import make_directory, move, partial_directory, writing
from shapeshift.errors import ShapeshiftError, reason

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, how much of it is done, and of how much, where that is known."""

_CHUNK = 1 << 20
_BUSY = (408, 425, 429, 500, 502, 503, 504)  # tried again


class _RetryError(Exception):
    """Something that may work when tried again."""


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
    """Return the file, downloaded unless it is there. If the connection breaks or the server is
    busy, the download starts again from the beginning.

    Args:
        url: over http or https.
        path: where to put the file; its folder is created if need be.
        sha256, md5: of the file, hexadecimal; None is not compared.
        on_progress: called with the number of bytes.
        attempts: number of attempts before it gives up.
        wait_s: seconds before the second attempt, then twice as long each time.

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
        with writing(path), partial_directory(path) as scratch:
            part = scratch / "part"
            for attempt in range(1, attempts + 1):
                try:
                    _receive(url, part, path, on_progress)
                    break
                except _RetryError as error:
                    if attempt == attempts:
                        raise ShapeshiftError(
                            f"cannot fetch {url} ({error}); run it again later, or put the file at"
                            f" {path} yourself"
                        ) from error
                    time.sleep(wait_s * 2 ** (attempt - 1))
            _compare(part, path, url, sha256, md5)
            move(part, path)
    return path


def _receive(url: str, part: Path, path: Path, on_progress: Progress | None) -> None:
    """Write what the server answers to `part`, which will be `path`."""
    headers = {"User-Agent": f"shapeshift/{__version__}", "Accept-Encoding": "identity"}
    yourself = f"download it with a browser and put it at {path}"
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer, part.open("wb") as file:
            if not answer.geturl().startswith((f"{request.type}:", "https:")):
                raise ShapeshiftError(
                    f"{url} redirects to {answer.geturl()[:200]!r}; expected https; {yourself}"
                )
            if answer.headers.get_content_type() == "text/html":
                raise ShapeshiftError(
                    f"{url} answered with a web page instead of the file (a confirmation, or a"
                    f" login?); {yourself}"
                )
            total = answer.length
            while chunk := answer.read(_CHUNK):
                with writing(path):
                    file.write(chunk)
                if on_progress is not None:
                    on_progress(f"download {path.name}", file.tell(), total)
            with writing(path):
                file.flush()
                os.fsync(file.fileno())
            if total is not None and file.tell() < total:
                raise _RetryError(f"{file.tell():,} of {total:,} bytes came")
    except urllib.error.HTTPError as error:
        answered = f"answered {error.code} {' '.join(error.reason.split())}"
        if error.code in _BUSY:
            raise _RetryError(answered) from error
        raise ShapeshiftError(
            f"{url} {answered}; put the file at {path} yourself, or change data.corpus.archives"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a bad URL
        raise _RetryError(reason(getattr(error, "reason", error))) from error


def _compare(file: Path, path: Path, url: str, sha256: str | None, md5: str | None) -> None:
    """Raise `ShapeshiftError` if a file, which is or will be `path`, has another hash."""
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
