"""The built-in corpus: an English-German synchronous grammar.

A derivation tree is drawn at random and written out twice, in English and in German. Rules inflect
the German (gender, number, case, strong, weak and mixed adjective endings, weak nouns) and order it
(verb second, verb last, separable prefixes, the sentence bracket). Each English sentence has one
German translation. docs/grammar.md describes the grammar.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from shapeshift.data.grammar.clauses import Clauses
from shapeshift.data.grammar.english import linearise_english
from shapeshift.data.grammar.german import linearise_german
from shapeshift.data.grammar.tree import Sentence
from shapeshift.errors import ShapeshiftError

__all__ = ["GRAMMAR_VERSION", "derive", "generate", "linearise_english", "linearise_german"]

GRAMMAR_VERSION = 1
"""Part of the fingerprint of the corpus. Raise it whenever `generate` yields other text."""

FEWEST_WORDS = 3
LONGEST_SHORT_SENTENCE = 14


def generate(
    num_pairs: int, *, seed: int, min_words: int = 3, max_words: int = 60
) -> Iterator[tuple[str, str]]:
    """Yield (English, German) sentence pairs; the same arguments yield the same pairs.

    Half of the lengths are uniform from `min_words` to 14; the other half reach from 15 to
    `max_words`, longer ones being rarer at a constant rate (the smaller of two uniform numbers).
    Where the bounds leave only one of these two ranges, all lengths come from it. The first n pairs
    of a longer run are the run of n.

    Args:
        num_pairs: how many pairs; 0 is allowed.
        seed: any integer from 0.
        min_words: fewest English words (separated by spaces) of a sentence; at least 3.
        max_words: most English words of a sentence.

    Raises:
        ShapeshiftError: an argument is out of its range.
    """
    for name, value, least in (
        ("num_pairs", num_pairs, 0),
        ("seed", seed, 0),
        ("min_words", min_words, FEWEST_WORDS),
        ("max_words", max_words, min_words),
    ):
        if value < least:
            raise ShapeshiftError(f"{name} must be at least {least}, got {value}")
    return _pairs(num_pairs, random.Random(seed), min_words, max_words)


def derive(rng: random.Random, num_words: int) -> Sentence:
    """Return a random derivation whose English sentence has exactly `num_words` words.

    Raises:
        ShapeshiftError: `num_words` is below 3.
    """
    if num_words < FEWEST_WORDS:
        raise ShapeshiftError(f"num_words must be at least {FEWEST_WORDS}, got {num_words}")
    return Clauses(rng).sentence(num_words)


def _pairs(
    num_pairs: int, rng: random.Random, min_words: int, max_words: int
) -> Iterator[tuple[str, str]]:
    clauses = Clauses(rng)
    for _ in range(num_pairs):
        sentence = clauses.sentence(_draw_length(rng, min_words, max_words))
        yield linearise_english(sentence), linearise_german(sentence)


def _draw_length(rng: random.Random, min_words: int, max_words: int) -> int:
    short = rng.random() < 0.5
    if min_words > LONGEST_SHORT_SENTENCE or (max_words > LONGEST_SHORT_SENTENCE and not short):
        shortest = max(min_words, LONGEST_SHORT_SENTENCE + 1)
        return shortest + int(min(rng.random(), rng.random()) * (max_words - shortest + 1))
    longest = min(max_words, LONGEST_SHORT_SENTENCE)
    return min_words + int(rng.random() * (longest - min_words + 1))
