"""Cutting a line that is too long for a model into pieces that are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shapeshift.data.subwords import SEPARATOR, split_parts
from shapeshift.errors import ShapeshiftError

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")
_WORDS = re.compile(r"(?<!@@)\s+")
"""Between words; the `@@` pieces of one word stay together."""

Count = Callable[[Sequence[str]], list[int]]
"""Returns the number of subwords of each text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line, and the text between its translation and that of the next piece."""

    text: str
    joiner: str


def split_text(text: str, limit: int, count: Count, *, joined: bool = False) -> list[Piece]:
    """Cut a text into pieces of at most `limit` subwords.

    Each piece is as long as it can be up to the end of a sentence; if none ends within `limit`, up
    to a word's. Only a word that is longer than the limit by itself is cut within, into halves.

    Args:
        text: white space between words is reduced to one space.
        limit: subwords, without `</s>`.
        count: how many subwords texts have.
        joined: the text is parts joined by ` <sep> `; each part is cut by itself.

    Raises:
        ShapeshiftError: a single character has more subwords than the limit.
    """
    pieces: list[Piece] = []
    for part in split_parts(text) if joined else [text]:
        words = _WORDS.split(part.strip())
        units: list[tuple[Piece, int]] = []  # each with its subwords
        for word, size in zip(words, count(words), strict=True):
            units += _cut_word(word, size, limit, count)
        while units:
            end = total = best = 0
            while end < len(units) and (end == 0 or total + units[end][1] <= limit):
                total += units[end][1]
                end += 1
                if _SENTENCE_END.search(units[end - 1][0].text):
                    best = end
            if end < len(units):
                end = best or end
            *first, last = (unit for unit, _ in units[:end])
            pieces.append(Piece("".join(x.text + x.joiner for x in first) + last.text, last.joiner))
            units = units[end:]
        pieces[-1] = Piece(pieces[-1].text, SEPARATOR)
    return pieces


def _cut_word(word: str, size: int, limit: int, count: Count) -> list[tuple[Piece, int]]:
    """Halve a word until all its parts fit."""
    if size <= limit:
        return [(Piece(word, " "), size)]
    if len(word) == 1:
        raise ShapeshiftError(
            f"a single character has more than {limit} subwords, so that the line cannot be"
            " cut; raise decoding.max_source_length"
        )
    halves = [word[: len(word) // 2], word[len(word) // 2 :]]
    first, second = (
        _cut_word(half, own, limit, count) for half, own in zip(halves, count(halves), strict=True)
    )
    return [*first[:-1], (Piece(first[-1][0].text, ""), first[-1][1]), *second]
