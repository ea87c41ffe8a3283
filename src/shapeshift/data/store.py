"""Token ids of sentence pairs on disk, read through memory maps.

A store is a folder: `store.json` (the header), and for `source` and `target` each
`<side>.tokens` (all ids end to end, little-endian uint16, or uint32 for a vocabulary of more than
65,536) and `<side>.offsets` (num_pairs + 1 little-endian int64: where each sentence starts, and the
end). Neither writing nor reading holds the text of a corpus in memory.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from shapeshift.errors import ShapeshiftError
from shapeshift.schema import Strict

HEADER = "store.json"
_OFFSET = np.dtype("<i8")
_REMEDY = "prepare the data again"


class _Side(Strict):
    """One language of a store."""

    dtype: Literal["<u2", "<u4"]
    vocab_size: int
    num_tokens: int
    tokens_crc32: int
    offsets_crc32: int


class _Header(Strict):
    """The file `store.json`."""

    format: Literal["shapeshift-tokens"] = "shapeshift-tokens"
    version: Literal[1] = 1
    num_pairs: int
    source: _Side
    target: _Side


class TokenStore:
    """Sentence pairs as token ids without `<s>` and `</s>`: `store[i] -> (source, target)`.

    Args:
        directory: where `TokenStoreWriter` wrote them.

    Raises:
        ShapeshiftError: no store there, another version, or files that are cut short.
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self._header = _read_header(self.directory)
        source, target = self._header.source, self._header.target
        self._source, self._source_offsets = self._map("source", source)
        self._target, self._target_offsets = self._map("target", target)

    @classmethod
    def open(cls, directory: str | Path) -> TokenStore:
        """Open a store for reading; the same as the constructor."""
        return cls(directory)

    def __len__(self) -> int:
        return self._header.num_pairs

    def __getitem__(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the ids of pair `index`, as read-only views of the files: (S,) and (T,)."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        source, target = self._source_offsets, self._target_offsets
        return (
            self._source[source[index] : source[index + 1]],
            self._target[target[index] : target[index + 1]],
        )

    def __reduce__(self) -> tuple[type[TokenStore], tuple[Path]]:
        # A data loader's worker opens the files itself; the default would copy all tokens to it.
        return TokenStore, (self.directory,)

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Subwords of each source sentence. Shape: (num_pairs,)."""
        return self._lengths("source", self._source_offsets)

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Subwords of each target sentence. Shape: (num_pairs,)."""
        return self._lengths("target", self._target_offsets)

    @property
    def source_size(self) -> int:
        """Size of the source vocabulary that the ids belong to."""
        return self._header.source.vocab_size

    @property
    def target_size(self) -> int:
        """Size of the target vocabulary that the ids belong to."""
        return self._header.target.vocab_size

    def verify(self) -> None:
        """Read all files and compare their checksums with the header.

        Raises:
            ShapeshiftError: a file has changed since it was written.
        """
        for name, side in (("source", self._header.source), ("target", self._header.target)):
            for ending, expected in (
                ("tokens", side.tokens_crc32),
                ("offsets", side.offsets_crc32),
            ):
                path = self.directory / f"{name}.{ending}"
                if _crc32(path) != expected:
                    raise ShapeshiftError(f"has changed since it was written; {_REMEDY}", path=path)

    def _map(self, name: str, side: _Side) -> tuple[NDArray[Any], NDArray[np.int64]]:
        tokens = _memory_map(self.directory / f"{name}.tokens", side.dtype, side.num_tokens)
        path = self.directory / f"{name}.offsets"
        offsets = _memory_map(path, _OFFSET, len(self) + 1)
        if offsets[0] != 0 or offsets[-1] != side.num_tokens:
            raise ShapeshiftError(
                f"offsets run from {offsets[0]} to {offsets[-1]}; expected 0 to "
                f"{side.num_tokens}; {_REMEDY}",
                path=path,
            )
        return tokens, offsets

    def _lengths(self, name: str, offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        lengths = np.diff(offsets).astype(np.int32)
        if len(lengths) and lengths.min() < 0:
            raise ShapeshiftError(
                f"offsets go backwards; {_REMEDY}", path=self.directory / f"{name}.offsets"
            )
        return lengths


class TokenStoreWriter:
    """Writes a store, pair by pair; a context manager.

    The files grow under a temporary name next to `directory` and get their own when the block ends
    without an exception: a store exists complete or not at all.

    Args:
        directory: where the store shall be; must not exist.
        source_size, target_size: vocabulary sizes; they decide how many bytes an id takes.

    Raises:
        ShapeshiftError: `directory` exists.
    """

    def __init__(self, directory: str | Path, *, source_size: int, target_size: int):
        self.directory = Path(directory)
        if self.directory.exists():
            raise ShapeshiftError("already exists; remove it first", path=self.directory)
        self._partial = self.directory.with_name(f".{self.directory.name}.partial")
        self._sizes = (source_size, target_size)
        self._num_pairs = 0

    def __enter__(self) -> TokenStoreWriter:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._files = ExitStack()
        source_size, target_size = self._sizes
        self._source = self._side("source", source_size)
        self._target = self._side("target", target_size)
        return self

    def add(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Append a pair of id sequences, without `<s>` and `</s>`."""
        self._source.add(source)
        self._target.add(target)
        self._num_pairs += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()
        if kind is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            return
        header = _Header(
            num_pairs=self._num_pairs, source=self._source.header(), target=self._target.header()
        )
        (self._partial / HEADER).write_text(header.model_dump_json(indent=2) + "\n", "utf-8")
        self._partial.rename(self.directory)

    def _side(self, name: str, vocab_size: int) -> _SideWriter:
        tokens = self._files.enter_context((self._partial / f"{name}.tokens").open("wb"))
        offsets = self._files.enter_context((self._partial / f"{name}.offsets").open("wb"))
        return _SideWriter(tokens, offsets, vocab_size)


class _SideWriter:
    """The two growing files of one language."""

    def __init__(self, tokens: BinaryIO, offsets: BinaryIO, vocab_size: int):
        self._dtype: Literal["<u2", "<u4"] = "<u2" if vocab_size <= 1 << 16 else "<u4"
        self._vocab_size = vocab_size
        self._tokens, self._offsets = tokens, offsets
        self._num_tokens = self._tokens_crc32 = self._offsets_crc32 = 0
        self._write_offset()

    def add(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < self._vocab_size:
            raise ValueError(f"ids {min(ids)} to {max(ids)}, vocabulary of {self._vocab_size}")
        data = np.asarray(ids, dtype=self._dtype).tobytes()
        self._tokens.write(data)
        self._tokens_crc32 = zlib.crc32(data, self._tokens_crc32)
        self._num_tokens += len(ids)
        self._write_offset()

    def header(self) -> _Side:
        return _Side(
            dtype=self._dtype,
            vocab_size=self._vocab_size,
            num_tokens=self._num_tokens,
            tokens_crc32=self._tokens_crc32,
            offsets_crc32=self._offsets_crc32,
        )

    def _write_offset(self) -> None:
        data = self._num_tokens.to_bytes(_OFFSET.itemsize, "little")
        self._offsets.write(data)
        self._offsets_crc32 = zlib.crc32(data, self._offsets_crc32)


def _read_header(directory: Path) -> _Header:
    path = directory / HEADER
    try:
        return _Header.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ShapeshiftError(f"holds no {HEADER}: not a token store", path=directory) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(x) for x in first["loc"])
        raise ShapeshiftError(
            f"not a header of version 1 ({place + ': ' if place else ''}{first['msg']}); {_REMEDY}",
            path=path,
        ) from error


def _memory_map(path: Path, dtype: np.dtype[Any] | str, count: int) -> NDArray[Any]:
    expected = count * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else None
    if found != expected:
        state = "is missing" if found is None else f"has {found:,} bytes"
        raise ShapeshiftError(f"{state}; expected {expected:,} bytes; {_REMEDY}", path=path)
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", shape=(count,))


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
