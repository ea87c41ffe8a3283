"""Text that is already split into subwords, as subword-nmt writes it (Sennrich et al. 2016).

Spaces separate the pieces, and a piece that continues in the next one ends in `@@`:
`extra@@ pol@@ ation`. A vocabulary is a text file: the five special pieces, then one piece a line.
A file that begins with those is a vocabulary, any other a SentencePiece model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from shapeshift.errors import ShapeshiftError

CONTINUES = "@@"
"""The end of a piece that continues in the next one."""

UNKNOWN = "⁇"
"""What an unknown piece becomes when it is decoded, as in SentencePiece."""


def join_pieces(text: str) -> str:
    """Return split text with its pieces joined: `@@ ` is taken out, at the end `@@` alone."""
    return text.replace(CONTINUES + " ", "").removesuffix(CONTINUES)


class Pieces:
    """A vocabulary of pieces for text that is already split.

    Special pieces in the text are unknown ones: no text encodes to them.

    Args:
        special: the special pieces, which have the first ids.
        pieces: the others, in the order of their ids.
        unknown: the id of what is not in the vocabulary.
    """

    def __init__(self, special: Sequence[str], pieces: Iterable[str], unknown: int):
        self._special = tuple(special)
        self._pieces = (*self._special, *pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i >= len(special)}
        self._unknown = unknown

    @classmethod
    def parse(cls, data: bytes, special: Sequence[str], unknown: int) -> Pieces | None:
        """Return the vocabulary that `serialise` wrote, or None for anything else."""
        head = "".join(piece + "\n" for piece in special).encode()
        if not data.startswith(head):
            return None
        return cls(special, data[len(head) :].decode().splitlines(), unknown)

    def serialise(self) -> bytes:
        """Return the vocabulary as text."""
        return "".join(piece + "\n" for piece in self._pieces).encode()

    def get_piece_size(self) -> int:
        """Return the number of pieces, special ones included."""
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [[self._ids.get(piece, self._unknown) for piece in text.split()] for text in texts]

    def id_to_piece(self, i: int) -> str:
        """Return the piece of an id."""
        return self._pieces[i]

    def unknown_pieces(self, text: str) -> list[str]:
        """Return the pieces of a text that are not in the vocabulary, except single characters,
        which even text that is split for this vocabulary may have."""
        pieces = (piece for piece in text.split() if piece not in self._ids)
        return [piece for piece in pieces if len(piece.removesuffix(CONTINUES)) > 1]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, its pieces joined; special ids but the unknown leave no trace."""
        pieces = [
            UNKNOWN if i == self._unknown else self._pieces[i]
            for i in ids
            if i == self._unknown or i >= len(self._special)
        ]
        return join_pieces(" ".join(pieces))


def count_pieces(texts: Iterable[str], special: Sequence[str], most: int) -> list[str]:
    """Return the pieces of texts, the most frequent first, equally frequent ones in order."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split())
    for piece in special:
        counts.pop(piece, None)
    if not counts:
        raise ShapeshiftError("the training text is empty: there are no pieces to be counted")
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]
