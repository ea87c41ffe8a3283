"""Token ids of sentence pairs on disk, read through memory maps.

A store is a folder: `store.json` (sizes of the vocabularies), and for `source` and `target` each
`<side>.tokens` (all ids end to end, little-endian uint16, or uint32 for a vocabulary of more than
65,536) and `<side>.offsets` (num_pairs + 1 little-endian int64: where each sentence starts, and the
end). Neither writing nor reading holds the text of a corpus in memory.

`Prepared` compares the files with their hashes before it opens a store. Here it is checked that
they fit each other, since a stranger's hashes say nothing about that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shapeshift._system.errors import ShapeshiftError, reason
from shapeshift._system.files import limited, read

HEADER = "store.json"
_SIDES = ("source", "target")
_OFFSET = np.dtype("<i8")
_BLOCK = 1_000  # pairs that are written together: one at a time takes four times as long


class FlatRows(NamedTuple):
    """Id sequences of different lengths in one array, end to end."""

    tokens: NDArray[Any]  # (sum of lengths,)
    lengths: NDArray[np.int64]  # (num_rows,)


class TokenStore:
    """Sentence pairs as token ids without `<s>` and `</s>`: `store[i] -> (source, target)`.

    Attributes:
        source_size, target_size: sizes of the vocabularies that the ids belong to.
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        try:
            header = json.loads(read(self.directory / HEADER))
            self.source_size, self.target_size = (header[f"{side}_size"] for side in _SIDES)
            self._sides = [_open_side(self.directory, x, header[f"{x}_size"]) for x in _SIDES]
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            problem = ShapeshiftError(
                f"holds no prepared text that can be read ({reason(error)}); remove the folder"
                " around it and run the command again, which prepares the data anew",
                path=self.directory,
            )
            raise limited(error, self.directory) or problem from error

    def __len__(self) -> int:
        return len(self._sides[0][1]) - 1

    def __getitem__(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the ids of pair `index`, as read-only views of the files: (S,) and (T,)."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        source, target = (ids[starts[index] : starts[index + 1]] for ids, starts in self._sides)
        return source, target

    def gather(self, indices: NDArray[np.int64]) -> tuple[FlatRows, FlatRows]:
        """Return the source and the target ids of several pairs, in the order of `indices`."""
        rows = []
        for tokens, offsets in self._sides:
            starts, lengths = offsets[indices], offsets[indices + 1] - offsets[indices]
            ends = np.cumsum(lengths)
            places = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
            rows.append(FlatRows(tokens[places], lengths))
        return rows[0], rows[1]

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Subwords of each source sentence. Shape: (num_pairs,)."""
        return np.diff(self._sides[0][1]).astype(np.int32)

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Subwords of each target sentence. Shape: (num_pairs,)."""
        return np.diff(self._sides[1][1]).astype(np.int32)


def write_store(
    directory: Path,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    source_size: int,
    target_size: int,
) -> TokenStore:
    """Write the source and target ids of pairs, without `<s>` and `</s>`, as they arrive, to a new
    folder. Sizes of the vocabularies decide how many bytes an id takes. The header is written last,
    so that an interrupted write leaves no valid store."""
    directory.mkdir(parents=True)
    sizes, num_tokens = (source_size, target_size), [0, 0]
    with ExitStack() as stack:
        tokens, offsets = (
            [stack.enter_context((directory / f"{side}.{what}").open("wb")) for side in _SIDES]
            for what in ("tokens", "offsets")
        )
        for file in offsets:
            file.write(bytes(_OFFSET.itemsize))
        rest = iter(pairs)
        while block := list(islice(rest, _BLOCK)):
            for side, rows in enumerate(zip(*block, strict=True)):
                lengths = np.fromiter(map(len, rows), np.int64, len(rows))
                ids = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
                if len(ids) and not 0 <= ids.min() <= ids.max() < sizes[side]:
                    raise ValueError(f"ids {ids.min()} to {ids.max()}, vocabulary of {sizes[side]}")
                tokens[side].write(ids.astype(_dtype(sizes[side])).tobytes())
                ends = num_tokens[side] + lengths.cumsum()
                offsets[side].write(ends.astype(_OFFSET).tobytes())
                num_tokens[side] = int(ends[-1])
    header = {"source_size": source_size, "target_size": target_size}
    (directory / HEADER).write_text(json.dumps(header, indent=2) + "\n", "utf-8")
    return TokenStore(directory)


def _open_side(directory: Path, side: str, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the tokens and offsets of a side; `ValueError` if they do not fit each other."""
    tokens = _memory_map(directory / f"{side}.tokens", _dtype(size))
    offsets = _memory_map(directory / f"{side}.offsets", _OFFSET)
    ordered = len(offsets) and offsets[0] == 0 and offsets[-1] == len(tokens)
    if not ordered or (np.diff(offsets) < 0).any() or (len(tokens) and tokens.max() >= size):
        raise ValueError(f"{side}: offsets or ids out of range")
    return tokens, offsets


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _memory_map(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r")
