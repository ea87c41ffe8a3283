"""Parallel text in one file, as it is shared: TSV and translation memories (TMX), plain or gzipped;
written as two files of one sentence a line.

A TSV file has the source in its first column and the target in its second one, or a first line that
names the columns by language; there are no quotes. Of a TMX file, units with both languages count.
In both, `en-GB` or `en_US` is `en` where nothing is called `en`; of several, the first is taken.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import replacing
from shapeshift.data.sources.files import find_file, read_lines, reading

_CHUNK = 1 << 16
MAX_SEGMENT = 1 << 24
"""Characters of a segment, and bytes of a tag: without a limit one would fill the memory."""
_CODES = ("bpt", "ept", "it", "ph", "ut")  # elements that hold codes of a format and no text


def is_table(path: Path) -> bool:
    """Return whether the name of a file says that it holds both languages."""
    return Path(path.name.removesuffix(".gz")).suffix.lower() in (".tsv", ".tmx")


def split_table(path: Path, languages: tuple[str, str], prefix: Path) -> list[int]:
    """Write `<prefix>.<source>` and `<prefix>.<target>`, which must not exist, from a TSV or TMX
    file; where it does not exist, the same name with `.gz` is read. Return the number of pairs, and
    of the rows or units left out because they have not both languages.

    Raises:
        ShapeshiftError: the file cannot be read, or has no pair in these languages; or a file to
            be written is there already.
    """
    path = find_file(path)
    if not path.is_file():
        raise ShapeshiftError("is no regular file", path=path)
    is_tmx = path.name.removesuffix(".gz").lower().endswith(".tmx")
    pairs = (_read_tmx if is_tmx else _read_tsv)(path, languages)
    counts = [0, 0]
    source, target = (Path(f"{prefix}.{language}") for language in languages)
    for made in (source, target):
        if os.path.lexists(made):
            raise ShapeshiftError(
                f"exists already, and text of {path} would be written here; move it away, or remove"
                " it",
                path=made,
            )
    with replacing(source) as sources, replacing(target) as targets:
        for pair in pairs:
            counts[pair is None] += 1
            if pair is not None:
                sources.write(f"{pair[0]}\n")
                targets.write(f"{pair[1]}\n")
        if not counts[0]:
            what = "units in" if is_tmx else "lines with a tab between"
            raise ShapeshiftError(f"has no {what} {languages[0]} and {languages[1]}", path=path)
    return counts


def _read_tsv(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str] | None]:
    columns = [0, 1]
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1:
            named: dict[int, tuple[bool, int]] = {}
            for column, cell in enumerate(cells):
                if (found := _side(cell, languages)) is not None:
                    side, exact = found
                    if side not in named or exact > named[side][0]:
                        named[side] = exact, column
            if len(named) == 2:
                columns = [named[side][1] for side in (0, 1)]
                continue
            if named or len(cells) > 2:
                raise ShapeshiftError(
                    f"has {len(cells)} columns, and which are {languages[0]} and {languages[1]} is"
                    " not known; give it a first line with these codes over the columns, in place"
                    " of another line of names",
                    path=path,
                    line=1,
                )
        if max(columns) < len(cells):
            yield cells[columns[0]], cells[columns[1]]
        else:
            yield None


def _read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str] | None]:
    reader = _Tmx(path, languages)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    fed = 0
    with reading(path), opener(path, "rb") as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK)
                reader.parser.Parse(chunk, not chunk)
            except (expat.ExpatError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ShapeshiftError(f"is no TMX file or damaged ({error})", path=path) from error
            fed += len(chunk)
            yield from reader.units
            reader.units.clear()
            if not chunk:
                return
            if fed - reader.parser.CurrentByteIndex > MAX_SEGMENT:
                raise ShapeshiftError(f"has a tag of more than {MAX_SEGMENT:,} bytes", path=path)


class _Tmx:
    """Collects the units of a TMX file while it is parsed. Entities are refused: a few declarations
    can stand for gigabytes of text."""

    def __init__(self, path: Path, languages: tuple[str, str]):
        self.units: list[tuple[str, str] | None] = []
        self._path = path
        self._languages = languages
        self._unit: dict[int, tuple[bool, str]] = {}
        self._side: tuple[int, bool] | None = None
        self._text: list[str] | None = None
        self._size = self._codes = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._entity

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._unit = {}
        elif name == "tuv":
            code = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._side = _side(code, self._languages)
        elif name == "seg" and self._side is not None:
            self._text, self._size = [], 0
        self._codes += name in _CODES

    def _end(self, name: str) -> None:
        self._codes -= name in _CODES
        if name == "seg" and self._text is not None and self._side is not None:
            side, exact = self._side
            if side not in self._unit or exact > self._unit[side][0]:
                self._unit[side] = exact, " ".join("".join(self._text).split())
            self._text = None
        elif name == "tu":
            both = len(self._unit) == 2
            self.units.append((self._unit[0][1], self._unit[1][1]) if both else None)

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._text.append(text)
            self._size += len(text)
            if self._size > MAX_SEGMENT:
                raise self._refused(f"has a segment of more than {MAX_SEGMENT:,} characters")

    def _entity(self, name: str, *_: object) -> None:
        raise self._refused(f"declares or uses the entity {name!r}")

    def _refused(self, problem: str) -> ShapeshiftError:
        message = f"{problem}; expected a translation memory"
        return ShapeshiftError(message, path=self._path, line=self.parser.CurrentLineNumber)


def _side(code: str, languages: tuple[str, str]) -> tuple[int, bool] | None:
    """Return which of two languages a code is, and whether it is the same code; `en-GB` is also
    `en`."""
    own = code.lower().replace("_", "-")
    codes = [each.lower().replace("_", "-") for each in languages]
    for each in (own, own.partition("-")[0]):
        if each in codes:
            return codes.index(each), each == own
    return None
