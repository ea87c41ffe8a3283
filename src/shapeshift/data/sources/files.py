"""Reading lines of UTF-8 text, plain or gzipped, one side or two in parallel.

Only `\\n` ends a line, so `\\r`, form feed, U+0085 and U+2028 are text like any other: line n of
one side stays the partner of line n of the other. The `\\r` of a CRLF file thus stays at the end of
its line, where subwords ignore it. Text that has `\\r` and no `\\n` at all is refused. A last line
without `\\n` counts; a byte order mark at the start of a file is dropped, and a file that holds
nothing else has no lines.
"""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from shapeshift._system.errors import ShapeshiftError, out_of_memory
from shapeshift._system.files import open_regular

_MAX_LINE = 1 << 24  # bytes: a file without line ends, such as a disk image, fills the memory
_MAX_HELD = 1 << 30  # bytes of a text that is held in memory
_LINE_OVERHEAD = 64  # bytes that Python adds to each line


def find_file(path: str | Path) -> Path:
    """Return `path`, or `path` with `.gz` after it where only that exists.

    Raises:
        ShapeshiftError: neither exists, or `path` is a folder.
    """
    plain = Path(path)
    packed = Path(f"{plain}.gz")
    for candidate in (plain, packed):
        if os.path.exists(candidate) and not os.path.isdir(candidate):
            return candidate
    if os.path.isdir(plain):
        raise ShapeshiftError("is a folder; expected a file of text", path=plain)
    raise ShapeshiftError(f"no such file: looked for {plain} and {packed}", path=plain)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an `OSError` of this block into a `ShapeshiftError`: `path` cannot be read."""
    try:
        yield
    except OSError as error:
        problem = ShapeshiftError(f"cannot be read: {error.strerror or error}", path=path)
        raise out_of_memory(error) or problem from error


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file, or, where it does not exist, of the same name with `.gz`,
    without their `\\n`, one at a time.

    Raises:
        ShapeshiftError: a missing or unreadable file, damaged gzip data, bytes that are not UTF-8,
            or a NUL character (which mostly means UTF-16 or a binary file).
    """
    file = find_file(path)
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with reading(file):
        stream = opener(file, "rb")
    with stream:
        yield from read_stream(stream, file)


def read_stream(stream: BinaryIO, name: str | Path) -> Iterator[str]:
    """Yield the lines of an open binary stream, such as `sys.stdin.buffer`, which an error calls
    `name`; see `read_lines`. It is read no further than lines are asked for."""
    number = 0

    def refused(problem: str, line: int | None) -> ShapeshiftError:
        return ShapeshiftError(problem, path=name, line=line)

    with reading(name):
        try:
            lines = iter(partial(stream.readline, _MAX_LINE + 1), b"")
            for number, raw in enumerate(lines, start=1):
                if len(raw) > _MAX_LINE:
                    expected = "expected a sentence or a document a line"
                    if b"\r" in raw:
                        expected += ", ended by \\n; it has \\r, which ends no line"
                    raise refused(f"longer than {_MAX_LINE:,} bytes; {expected}", number)
                if number == 1 and b"\r" in raw[:-1] and not raw.endswith(b"\n"):
                    convert = "convert the text with: tr '\\r' '\\n'"
                    raise refused(f"ends its lines with \\r alone, not with \\n; {convert}", number)
                if b"\0" in raw:
                    expected = "expected UTF-8 text (is it UTF-16 or a binary file?)"
                    raise refused(f"a NUL character; {expected}", number)
                data = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
                if data:
                    yield data.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            byte, place = error.object[error.start], error.start + 1
            problem = f"not UTF-8: byte 0x{byte:02x} at byte {place} of the line"
            raise refused(f"{problem}; convert the text to UTF-8", number) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"damaged gzip data after line {number} ({error})"
            raise refused(f"{problem}; unpack or fetch the file again", None) from error


def hold(lines: Iterable[str], name: str | Path) -> list[str]:
    """Read all lines of a text, which an error calls `name`, into memory.

    Raises:
        ShapeshiftError: there are too many: the text may never end.
    """
    held, size = [], 0
    for number, line in enumerate(lines, start=1):
        size += len(line) + _LINE_OVERHEAD
        if size > _MAX_HELD:
            problem = f"the lines up to here are too many for the memory ({_MAX_HELD:,} bytes)"
            raise ShapeshiftError(f"{problem}; expected a test set", path=name, line=number)
        held.append(line)
    return held


def read_parallel(*paths: str | Path) -> Iterator[tuple[str, ...]]:
    """Yield the lines of several regular files in parallel.

    Raises:
        ShapeshiftError: as `read_lines`; a file is a pipe, which cannot be read again; or one file
            has more lines than another, which is known only at the end of the shorter one.
    """
    for path in map(find_file, paths):
        with reading(path):
            open_regular(path).close()
    files = [read_lines(path) for path in paths]
    for number, lines in enumerate(zip_longest(*files)):
        if None in lines:
            each = zip(paths, lines, files, strict=True)
            counts = [(x, number + (line is not None) + sum(1 for _ in y)) for x, line, y in each]
            sizes = " but ".join(f"{path} has {count:,} lines" for path, count in counts)
            problem = "line n of one must be the translation of line n of the other"
            raise ShapeshiftError(f"{sizes}; {problem}")
        yield lines
