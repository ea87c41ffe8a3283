"""Cutting a line that is too long for a model into pieces that are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shapeshift.data.subwords import SEPARATOR, split_parts
from shapeshift.errors import ShapeshiftError

WORD, CLAUSE, SENTENCE, PART = range(4)
"""How good a cut after a word is, from worst to best."""

_CLOSING = r"[\"'”’»)\]]*$"
_SENTENCE_END = re.compile(r"[.!?…。！？]" + _CLOSING)
_WORDS = re.compile(r"(?<!@@)\s+")
"""Between words; the `@@` pieces of one word stay together."""
_CLAUSE_END = re.compile(r"[,;:–—、，；：]" + _CLOSING)

Count = Callable[[Sequence[str]], list[int]]
"""Returns the number of subwords of each text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line, and the text between its translation and that of the next piece."""

    text: str
    joiner: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word or a part of one: its size in subwords, how good a cut after it is, and the text that
    joins it to the next."""

    text: str
    size: int
    strength: int
    joiner: str


def split_text(text: str, limit: int, count: Count, *, joined: bool = False) -> list[Piece]:
    """Cut a text into pieces of at most `limit` subwords.

    Each piece is as long as it can be up to the end of a part (of a joined text) or of a sentence;
    if none ends within `limit`, up to a clause's, as long as that fills half of the limit; then up
    to a word's. Only a word that is longer than the limit by itself is cut within, into halves.

    Args:
        text: white space between words is reduced to one space.
        limit: subwords, without `</s>`.
        count: how many subwords texts have.
        joined: the text is parts joined by ` <sep> `.

    Raises:
        ShapeshiftError: a single character has more subwords than the limit.
    """
    units = _units(text, limit, count, joined)
    pieces: list[Piece] = []
    start = 0
    while start < len(units):
        end = _cut(units, start, limit)
        joiner = units[end - 1].joiner
        piece = "".join(unit.text + unit.joiner for unit in units[start:end])
        pieces.append(Piece(piece.removesuffix(joiner), joiner))
        start = end
    return pieces


def _units(text: str, limit: int, count: Count, joined: bool) -> list[_Unit]:
    units: list[_Unit] = []
    for part in split_parts(text) if joined else [text]:
        words = _WORDS.split(part.strip())
        for word, size in zip(words, count(words), strict=True):
            units += _cut_word(word, size, limit, count)
            strength = _strength(word) if size <= limit else WORD
            units[-1] = replace(units[-1], strength=strength, joiner=" ")
        size = units[-1].size + joined
        units[-1] = replace(units[-1], size=size, strength=PART, joiner=SEPARATOR)
    return units


def _strength(word: str) -> int:
    if _SENTENCE_END.search(word):
        return SENTENCE
    return CLAUSE if _CLAUSE_END.search(word) else WORD


def _cut_word(word: str, size: int, limit: int, count: Count) -> list[_Unit]:
    """Halve a word until all its parts fit."""
    if size <= limit:
        return [_Unit(word, size, WORD, "")]
    if len(word) == 1:
        raise ShapeshiftError(
            f"a single character has more than {limit} subwords, so that the line cannot be"
            " cut; raise decoding.max_source_length"
        )
    halves = [word[: len(word) // 2], word[len(word) // 2 :]]
    parts = zip(halves, count(halves), strict=True)
    return [unit for part, size in parts for unit in _cut_word(part, size, limit, count)]


def _cut(units: list[_Unit], start: int, limit: int) -> int:
    """Return where the piece that begins at `start` ends."""
    best: dict[int, int] = {}  # strength -> the last cut of it, and of anything stronger
    total = 0
    for end, unit in enumerate(units[start:], start + 1):
        total += unit.size
        if total > limit and end > start + 1:
            break
        if unit.strength != CLAUSE or 2 * total >= limit:
            best[unit.strength] = end
        best[WORD] = end
    else:
        return len(units)
    return best[max(best)]
