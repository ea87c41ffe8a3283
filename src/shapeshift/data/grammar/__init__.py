"""The built-in corpus: an English-German synchronous grammar.

A derivation tree is drawn at random and written out twice, in English and in German. Rules inflect
the German (gender, number, case, strong, weak and mixed adjective endings, weak nouns) and order it
(verb second, verb last, separable prefixes, the sentence bracket). Each English sentence has one
German translation. docs/grammar.md describes the grammar.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from shapeshift.data.grammar.derivation import Derivation

GRAMMAR_VERSION = 1
"""Part of the fingerprint of the corpus. Raise it whenever `generate` yields other text."""

LONGEST_SHORT_SENTENCE = 14


def generate(
    num_pairs: int, *, seed: int, min_words: int = 3, max_words: int = 60
) -> Iterator[tuple[str, str]]:
    """Yield (English, German) sentence pairs; the same arguments yield the same pairs.

    A sentence has from `min_words`, at least 3, to `max_words` English words. Half of the lengths
    are uniform from `min_words` to 14; the other half reach from 15 to `max_words`, longer ones
    being rarer at a constant rate (the smaller of two uniform numbers). Where the bounds leave only
    one of these two ranges, all lengths come from it. The first n pairs of a longer run are the run
    of n.
    """
    rng = random.Random(seed)
    derivation = Derivation(rng)
    for _ in range(num_pairs):
        sentence = derivation.sentence(_draw_length(rng, min_words, max_words))
        yield sentence.in_english(), sentence.in_german()


def _draw_length(rng: random.Random, min_words: int, max_words: int) -> int:
    short = rng.random() < 0.5
    if min_words > LONGEST_SHORT_SENTENCE or (max_words > LONGEST_SHORT_SENTENCE and not short):
        shortest = max(min_words, LONGEST_SHORT_SENTENCE + 1)
        return shortest + int(min(rng.random(), rng.random()) * (max_words - shortest + 1))
    longest = min(max_words, LONGEST_SHORT_SENTENCE)
    return min_words + int(rng.random() * (longest - min_words + 1))
