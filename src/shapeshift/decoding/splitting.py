"""Cutting a line that is too long for a model into pieces that are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import SEPARATOR, split_parts

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")
_WORDS = re.compile(r"(?<!@@)\s+")
"""Between words; the `@@` pieces of one word stay together."""

Count = Callable[[Sequence[str]], list[int]]
"""Returns the number of subwords of each text."""


def split_text(
    text: str, limit: int, count: Count, *, joined: bool = False
) -> list[tuple[str, str]]:
    """Cut a text into pieces of at most `limit` subwords; return each with the text between its
    translation and that of the next one.

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
    pieces: list[tuple[str, str]] = []
    for part in split_parts(text) if joined else [text]:
        words = _WORDS.split(part.strip())
        sizes = zip(words, count(words), strict=True)
        units = [unit for word, size in sizes for unit in _cut_word(word, size, limit, count)]
        start = 0
        while start < len(units):
            end, total, best = start, 0, 0
            # Parts of a word stay apart: together, they may have more subwords than their sum.
            while end < len(units) and (
                end == start or (units[end - 1][1] and total + units[end][2] <= limit)
            ):
                total += units[end][2]
                end += 1
                if _SENTENCE_END.search(units[end - 1][0]):
                    best = end
            if end < len(units):
                end = best or end
            *first, (last, joiner, _) = units[start:end]
            pieces.append(("".join(unit + space for unit, space, _ in first) + last, joiner))
            start = end
        pieces[-1] = (pieces[-1][0], SEPARATOR)
    return pieces


def _cut_word(word: str, size: int, limit: int, count: Count) -> list[tuple[str, str, int]]:
    """Halve a word until all parts fit; return each part, the text after it, and its subwords."""
    if size <= limit:
        return [(word, " ", size)]
    if len(word) == 1:
        raise ShapeshiftError(
            f"a single character has more than {limit} subwords, so that the line cannot be"
            " cut; raise decoding.max_source_length"
        )
    halves = [word[: len(word) // 2], word[len(word) // 2 :]]
    first, second = (
        _cut_word(half, own, limit, count) for half, own in zip(halves, count(halves), strict=True)
    )
    last, _, own = first.pop()
    return [*first, (last, "", own), *second]
