"""Parallel text that is being written, so that it can be taken up again where it broke off.

    NAME.en, NAME.de   what has come of an entry
    places.json        of what it is made, and the place of each entry; then a hash of that

What is in the files beyond its place does not count. What is not as it was written is written anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shapeshift.disk import Disk, remove_directory, save, writing

_PLACES = "places.json"


class Place(NamedTuple):
    """How far an entry has been read and written.

    Attributes:
        shard: which of the files it is read from is next.
        row: how many of that file's rows have been read.
        num_rows: how many rows have been read, of all files.
        num_pairs: how many pairs have been written.
        source_bytes, target_bytes: sizes of the two text files.
        source_sha256, target_sha256: their hashes, when the place was saved.
    """

    shard: int = 0
    row: int = 0
    num_rows: int = 0
    num_pairs: int = 0
    source_bytes: int = 0
    target_bytes: int = 0
    source_sha256: str = hashlib.sha256().hexdigest()
    target_sha256: str = hashlib.sha256().hexdigest()


class Side:
    """One of an entry's two text files, cut to `num_bytes` and hashed, to be appended to."""

    def __init__(self, path: Path, num_bytes: int):
        self.file = open(path, "r+b", opener=_open_file)  # noqa: SIM115
        self.digest = hashlib.sha256()
        left = num_bytes
        while left and (data := self.file.read(min(left, 1 << 20))):
            self.digest.update(data)
            left -= len(data)
        self.file.seek(num_bytes - left)
        self.file.truncate()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.file.write(data)
        self.digest.update(data)


class Partial:
    """A folder of text files, and the place of each of its entries.

    Args:
        folder: where it is, or will be; emptied if it was made from anything but `origin`.
        languages: of source and target; they end the names of files.
        origin: what tells the text apart, as JSON has it; None for text that nothing tells apart.

    Attributes:
        folder: where it is.
        places: entry → its place, which the writer keeps up to date.
    """

    def __init__(self, folder: Path, languages: tuple[str, str], origin: dict[str, Any] | None):
        self.folder, self._languages, self._origin = folder, languages, origin
        self.places = {} if folder.is_symlink() else self._read()
        if not self.places:
            if os.path.lexists(folder):
                remove_directory(Disk(), folder)
            folder.mkdir()

    @contextmanager
    def open(self, name: str) -> Iterator[Sequence[Side]]:
        """Open the files of an entry, cut to its place, to be appended to; save its place, however
        this ends."""
        place = self.places.get(name, Place())
        with ExitStack() as stack:
            sides = self._sides(stack, name, place)
            if [side.digest.hexdigest() for side in sides] != list(place[-2:]):
                place = Place()  # what it stands for is not there
                sides = self._sides(stack, name, place)
            self.places[name] = place
            try:
                yield sides
            finally:
                self.save(name, sides)

    def save(self, name: str, sides: Sequence[Side]) -> None:
        """Bring to the disk what was written to an entry's open files, then the places."""
        place = self.places[name]
        if [side.file.tell() for side in sides] != [place.source_bytes, place.target_bytes]:
            return  # stopped in the middle of a pair: the place that was saved last counts
        for side in sides:
            side.file.flush()
            os.fsync(side.file.fileno())
        hashes = [side.digest.hexdigest() for side in sides]
        self.places[name] = Place(*place[:-2], *hashes)
        tree = {"origin": self._origin, "places": self.places}
        text = json.dumps(tree)
        save(self.folder / _PLACES, f"{text}\n{_sha256(text)}\n")

    def discard_useless(self) -> None:
        """Remove the folder if nothing has been written, or could be taken up again."""
        if self._origin is None or not any(place.num_pairs for place in self.places.values()):
            remove_directory(Disk(), self.folder)

    def finish(self, folder: Path, name: str, record: dict[str, Any]) -> None:
        """Make it the folder `folder`, with a file `name` that holds `record` and, under `files`,
        the lines, bytes and SHA-256 of each file."""
        files = {
            path.name: {"lines": place.num_pairs, "bytes": num_bytes, "sha256": sha256}
            for entry, place in self.places.items()
            for path, num_bytes, sha256 in zip(
                self._paths(entry), place[-4:-2], place[-2:], strict=True
            )
        }
        save(self.folder / name, json.dumps(record | {"files": files}, indent=1) + "\n")
        with writing(folder):
            self.folder.rename(folder)
            (folder / _PLACES).unlink(missing_ok=True)
            Disk().sync_directory(folder.parent)

    def _paths(self, name: str) -> list[Path]:
        return [self.folder / f"{name}.{language}" for language in self._languages]

    def _sides(self, stack: ExitStack, name: str, place: Place) -> list[Side]:
        sides = []
        for path, num_bytes in zip(self._paths(name), place[-4:-2], strict=True):
            sides.append(Side(path, num_bytes))
            stack.enter_context(sides[-1].file)
        return sides

    def _read(self) -> dict[str, Place]:
        try:
            text, sha256, _ = (self.folder / _PLACES).read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError):
            return {}
        if sha256 != _sha256(text):
            return {}
        tree = json.loads(text)
        if self._origin is None or tree["origin"] != self._origin:
            return {}
        return {name: Place(*place) for name, place in tree["places"].items()}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _open_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)
