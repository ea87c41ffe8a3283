"""From words to text, for both languages. A comma is a word of its own until `write`."""

from __future__ import annotations

from collections.abc import Iterable

COMMA = ","


def write(clauses: Iterable[list[str]], conjunctions: Iterable[str]) -> str:
    """Return main clauses as a sentence: a comma before each conjunction, a capital letter, a full
    stop. Empty words are left out; where two commas meet, or one meets the full stop, one goes."""
    words: list[str] = []
    for conjunction, clause in zip(["", *conjunctions], clauses, strict=True):
        words += [COMMA, conjunction, *clause]
    text = " ".join(filter(None, words))
    while " , ," in text:
        text = text.replace(" , ,", " ,")
    text = text.replace(" ,", COMMA).strip(", ")
    return text[0].upper() + text[1:] + "."


def coordinate(items: list[list[str]], conjunction: str) -> list[str]:
    """Return the words of `a, b and c`."""
    if len(items) == 1:
        return items[0]
    words = [*items[0]]
    for item in items[1:-1]:
        words += [COMMA, *item]
    return [*words, conjunction, *items[-1]]
