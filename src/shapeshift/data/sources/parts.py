"""Parts of parallel text that is being fetched: each complete or not at all.

A part holds source and target lines in turn, then the number of rows that were read for it, then a
hash of all that and of the origin of the text. A part that is damaged, or of another origin, does
not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from shapeshift.disk import Disk, write_file

_LINES_AT_ONCE = 10_000


class Part(NamedTuple):
    """A file that is complete.

    Attributes:
        path: where it is.
        num_rows: rows of the dataset that were read for it.
        num_pairs: pairs in it.
    """

    path: Path
    num_rows: int
    num_pairs: int


def part_content(
    pairs: Iterator[list[str] | None],
    limit: int | None,
    origin: str,
    report: Callable[[int], None],
) -> Iterator[bytes]:
    """Yield the content of a part.

    Args:
        pairs: source and target of each row, or None for a row that is not drawn.
        limit: most pairs.
        origin: what the hash depends on besides the content.
        report: called with the number of pairs.
    """
    digest = hashlib.sha256(origin.encode())
    num_rows = num_pairs = 0
    for num_rows, pair in enumerate(pairs, start=1):
        if pair is not None:
            lines = "".join(f"{text}\n" for text in pair).encode()
            digest.update(lines)
            yield lines
            num_pairs += 1
        if num_rows % _LINES_AT_ONCE == 0:
            report(num_pairs)
        if num_pairs == limit:
            break
    last = f"{num_rows}\n".encode()
    digest.update(last)
    yield last + f"{digest.hexdigest()}\n".encode()


def read_part(path: Path, origin: str) -> Part | None:
    """Return a part that is there, complete and of this origin."""
    if not path.is_file():
        return None
    digest, num_lines, num_rows, last = hashlib.sha256(origin.encode()), 0, b"", b""
    with path.open("rb") as file:
        for line in file:
            digest.update(last)
            num_rows, last = last, line
            num_lines += 1
    if last != f"{digest.hexdigest()}\n".encode():
        return None
    return Part(path, int(num_rows), num_lines // 2 - 1)


def join_parts(
    parts: list[Part], folder: Path, name: str, source: str, target: str
) -> dict[str, dict[str, Any]]:
    """Write `name.source` and `name.target`; return the lines, bytes and SHA-256 of each file."""
    files = {}
    for side, language in enumerate((source, target)):
        path = folder / f"{name}.{language}"
        written = write_file(Disk(), path, _side_lines(parts, side))
        files[path.name] = {
            "lines": sum(part.num_pairs for part in parts),
            "bytes": written.num_bytes,
            "sha256": written.sha256,
        }
    return files


def _side_lines(parts: list[Part], side: int) -> Iterator[bytes]:
    for part in parts:
        with part.path.open("rb") as file:
            lines = islice(file, side, 2 * part.num_pairs, 2)
            while chunk := b"".join(islice(lines, _LINES_AT_ONCE)):
                yield chunk
