"""Checks files against the hashes in the `SHA256SUMS` of their folder before they are used.

The file has the format of `sha256sum`, which can check it (`sha256sum --check SHA256SUMS`), and a
last line with the hash of the lines above. A file that it does not list was written by an earlier
version and is used as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import DISK, limited, open_regular, read, refuse_link, save

SUMS = "SHA256SUMS"
_UNVERIFIED = "remove it to use the files that it lists without a check"
_FORBIDDEN, _PERMISSIONS = "may not be read", "fix its permissions"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\0]+)")


def seal(directory: Path) -> None:
    """Flush all files of a folder to the disk, and write their hashes."""
    hashes = {}
    for path in sorted(directory.rglob("*")):
        DISK.sync(path)
        if path.is_file():
            hashes[path.relative_to(directory).as_posix()] = hash_file(path)
    _write_sums(directory, hashes)


def store(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files that a folder lacks, after their hashes. A crash in between looks like damage
    until the same files are stored again.

    Raises:
        ShapeshiftError: a file cannot be written, or is in a folder below that is a link.
    """
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    known = read_sums(directory)
    for name in contents:
        for below in PurePosixPath(name).parents[:-1]:
            refuse_link(directory / below)
    if known | hashes != known:
        _write_sums(directory, known | hashes)
    for name, content in contents.items():
        if _damage(directory / name, hashes[name]):
            save(directory / name, content)


def restore(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Rewrite damaged or missing files from `contents` whose hash matches the recorded one."""
    known = read_sums(directory)
    same = {x: y for x, y in contents.items() if known.get(x) == hashlib.sha256(y).hexdigest()}
    store(directory, same)


def verify(
    directory: Path, prefix: str = "", *, remedy: str, sums_remedy: str = _UNVERIFIED
) -> None:
    """Compare files with their hashes; each process checks each version of a file once.

    Args:
        directory: that holds `SHA256SUMS`; without one there is nothing to compare with.
        prefix: of the names of the files that are compared, below `directory`.
        remedy: what the user can do about a damaged file.
        sums_remedy: what the user can do about a damaged `SHA256SUMS`.

    Raises:
        ShapeshiftError: a file is missing, cannot be read, or differs from what was written.
    """
    sums = read_sums(directory, sums_remedy)
    expected = {directory / name: sums[name] for name in sums if name.startswith(prefix)}
    with ThreadPoolExecutor() as threads:
        damages = threads.map(_damage, expected.keys(), expected.values())
        for path, damage in zip(expected, damages, strict=True):
            if damage:
                advice = _PERMISSIONS if damage == _FORBIDDEN else remedy
                raise ShapeshiftError(f"{damage}; {advice}", path=path)


def read_sums(directory: Path, remedy: str = _UNVERIFIED) -> dict[str, str]:
    """Return name → SHA-256 for each listed file; empty if there is no `SHA256SUMS`."""
    path = directory / SUMS
    try:
        content = read(path)
    except FileNotFoundError:
        return {}
    except PermissionError as error:
        raise ShapeshiftError(f"{_FORBIDDEN}; {_PERMISSIONS}", path=path) from error
    except OSError as error:
        problem = ShapeshiftError(f"cannot be read: {error.strerror}; {remedy}", path=path)
        raise limited(error, path) or problem from error
    body, _, own = content.rpartition(b"# ")
    if own != _own_hash(body):
        raise ShapeshiftError(f"differs from what was written; {remedy}", path=path)
    sums = {}
    for number, line in enumerate(body.decode(errors="replace").split("\n")[:-1], start=1):
        match = _LINE.fullmatch(line)
        name = PurePosixPath(match[2]) if match else None
        if match is None or name is None or name.is_absolute() or ".." in name.parts:
            message = f"not a hash and the name of a file in this folder; {remedy}"
            raise ShapeshiftError(message, path=path, line=number)
        sums[match[2]] = match[1]
    return sums


def digest(document: Any) -> str:
    """Return the SHA-256 of a document of plain values, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _write_sums(directory: Path, hashes: Mapping[str, str]) -> None:
    body = "".join(f"{value}  {name}\n" for name, value in sorted(hashes.items())).encode()
    save(directory / SUMS, body + b"# " + _own_hash(body))


def _own_hash(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n"


def _damage(path: Path, expected: str) -> str | None:
    try:
        return None if hash_file(path) == expected else "differs from what was written (SHA-256)"
    except FileNotFoundError:
        return "is missing"
    except PermissionError:
        return _FORBIDDEN
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a regular file in hexadecimal; each version of a file is read once."""
    status = path.stat()
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    # A file that changes twice within a tick of the file system's clock has one version: only what
    # has not changed for two seconds is known by it.
    settled = time.time_ns() - changed > 2_000_000_000
    read = _read_hash if settled else _read_hash.__wrapped__
    return read(path, status.st_ino, status.st_size, changed)


@cache
def _read_hash(path: Path, *version: int) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
