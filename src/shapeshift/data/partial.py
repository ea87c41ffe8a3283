"""Parallel text that is being written, so that it can be taken up again where it broke off.

    NAME.en, NAME.de   what has come of an entry
    places.json        of what it is made, and the place of each entry

What is in the files beyond its place does not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_PLACES = "places.json"


class Place(NamedTuple):
    """How far an entry has been read and written.

    Attributes:
        shard: which of the files it is read from is next.
        row: how many of that file's rows have been read.
        num_rows: how many rows have been read, of all files.
        num_pairs: how many pairs have been written.
        source_bytes, target_bytes: sizes of the two text files.
    """

    shard: int = 0
    row: int = 0
    num_rows: int = 0
    num_pairs: int = 0
    source_bytes: int = 0
    target_bytes: int = 0


class Partial:
    """A folder of text files, and the place of each of its entries.

    Args:
        folder: where it is, or will be; emptied if it was made from anything but `origin`.
        languages: of source and target; they end the names of files.
        origin: what tells the text apart, as JSON has it; None for text that nothing tells apart.

    Attributes:
        folder: where it is.
        places: entry → its place, which whoever writes keeps up to date.
    """

    def __init__(self, folder: Path, languages: tuple[str, str], origin: dict[str, Any] | None):
        self.folder, self._languages, self._origin = folder, languages, origin
        self.places = self._read()
        if not self.places:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()

    @contextmanager
    def open(self, name: str) -> Iterator[Sequence[BinaryIO]]:
        """Open the files of an entry, cut to its place, to be appended to; save its place, however
        this ends."""
        place = self.places.get(name, Place())
        sizes = [place.source_bytes, place.target_bytes]
        with ExitStack() as stack:
            sides = [stack.enter_context(path.open("ab")) for path in self._paths(name)]
            if any(side.tell() < size for side, size in zip(sides, sizes, strict=True)):
                place, sizes = Place(), [0, 0]  # what it stands for is not there
            for side, size in zip(sides, sizes, strict=True):
                side.truncate(size)
            self.places[name] = place
            try:
                yield sides
            finally:
                self.save(sides)

    def save(self, sides: Sequence[BinaryIO]) -> None:
        """Bring to the disk what was written to open files, then the places."""
        for side in sides:
            side.flush()
            os.fsync(side.fileno())
        places = {name: place._asdict() for name, place in self.places.items()}
        self._write(_PLACES, {"origin": self._origin, "places": places})

    def discard_useless(self) -> None:
        """Remove the folder if nothing has been written, or could be taken up again."""
        if self._origin is None or not any(place.num_pairs for place in self.places.values()):
            shutil.rmtree(self.folder)

    def finish(self, folder: Path, name: str, record: dict[str, Any]) -> None:
        """Make it the folder `folder`, with a file `name` that holds `record` and, under `files`,
        the lines, bytes and SHA-256 of each file."""
        files = {
            path.name: {
                "lines": place.num_pairs,
                "bytes": path.stat().st_size,
                "sha256": _sha256(path),
            }
            for entry, place in self.places.items()
            for path in self._paths(entry)
        }
        self._write(name, record | {"files": files})
        self.folder.rename(folder)
        (folder / _PLACES).unlink(missing_ok=True)

    def _paths(self, name: str) -> list[Path]:
        return [self.folder / f"{name}.{language}" for language in self._languages]

    def _read(self) -> dict[str, Place]:
        try:
            found = json.loads((self.folder / _PLACES).read_bytes())
        except (OSError, ValueError):
            return {}
        if self._origin is None or found["origin"] != self._origin:
            return {}
        return {name: Place(**place) for name, place in found["places"].items()}

    def _write(self, name: str, tree: dict[str, Any]) -> None:
        draft = self.folder / f".{name}"
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(tree, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
