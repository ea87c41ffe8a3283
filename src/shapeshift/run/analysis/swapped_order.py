"""BLEU of a sentence at the beginning and at the end of a long sequence.

Kiyono et al. 2021 (SHAPE), section 3.2 and Table 1. Training pairs of Interpolate, ten sentences
joined into one, are translated twice: in the original order (X_1, …, X_10), and swapped, with the
first sentence moved to the end: (X_2, …, X_10, X_1). Only the translation of X_1 is scored. The
pairs come from training, so that no sentence is unseen and only its place differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from shapeshift.data.config import Interpolate
from shapeshift.data.prepared import Prepared
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import SEP
from shapeshift.decoding.translator import Translator
from shapeshift.run.folder import Run
from shapeshift.run.measures import BLEU, ORIGINAL, SWAPPED, Result, bleu_of, declares, keep_lines

NUM_PAIRS = 10_000
"""Size of the paper's sample."""

_SAMPLED, _MIN_SAMPLE = 45, 500
"""The paper samples one in 45 of its training sequences: 10,000 of 450,000."""

Pair = tuple[list[int], list[int]]


_ORDERS = ("original order", "swapped order")


@declares(replace(BLEU, buckets=_ORDERS))
def measure(run: Run, data: Prepared, which: str = "average") -> list[Result]:
    """Measure BLEU of the first sentence of joined training pairs in its place and at the end
    (Kiyono et al. 2021, Table 1) on one in 45 training pairs, 500 at least and 10,000 at most;
    nothing for a run whose pairs are not joined. Of the final model the translations of both orders
    and the references are kept as those of a split are."""
    if not isinstance(run.config.data.recipe, Interpolate):
        return []
    wanted = min(max(_MIN_SAMPLE, round(len(data.train) / _SAMPLED)), NUM_PAIRS)
    references, *both = translate(run.translator(which), sample(data.train, wanted))
    if which == "average":
        for name, outputs in zip((ORIGINAL, SWAPPED), both, strict=True):
            keep_lines(run.directory, name, "average", outputs)
        keep_lines(run.directory, ORIGINAL, "references", references)
    return [
        row
        for order, outputs in zip(_ORDERS, both, strict=True)
        for row in bleu_of(run.config, outputs, references, "train", order)
    ]


def sample(store: TokenStore, num_pairs: int) -> list[Pair]:
    """Draw the same joined pairs from a training store each time, without replacement, in the order
    of the store.

    A last pair without separators, which joining had left over, is left out.
    """
    draw = np.random.default_rng(0)
    last = len(store) - 1
    size = last + (last == 0 or any(SEP in side for side in store[last]))
    numbers = draw.choice(size, size=min(num_pairs, size), replace=False)
    pairs = []
    for number in sorted(numbers.tolist()):
        source, target = (side.tolist() for side in store[number])
        assert source.count(SEP) == target.count(SEP) > 0, f"pair {number} is not joined"
        pairs.append((source, target))
    return pairs


def parts(ids: Sequence[int]) -> list[list[int]]:
    """Return the sentences of a joined sequence, without the separators."""
    cuts = [-1, *(n for n, each in enumerate(ids) if each == SEP), len(ids)]
    return [[*ids[before + 1 : cut]] for before, cut in pairwise(cuts)]


def swap(ids: Sequence[int]) -> list[int]:
    """Move the first sentence of a joined sequence to its end: (X_2, …, X_n, X_1)."""
    first = list(ids).index(SEP)
    return [*ids[first + 1 :], SEP, *ids[:first]]


def translate(translator: Translator, pairs: Sequence[Pair]) -> tuple[list[str], ...]:
    """Return the references of the first sentences of joined pairs, their translations in the
    original order, and those in the swapped order.

    That is the first part of the output in the original order and the last part in the swapped
    order; separators divide an output into parts. (The paper does not say how it finds the
    sentence.) References are decoded from their ids, so they have passed through the subword
    model's normalisation; a subword outside the vocabulary is `⁇` on both sides.
    """
    sources = [source for source, _ in pairs]
    decode = translator.subwords.decode_target

    def first(ordered: Sequence[Sequence[int]], place: int) -> list[str]:
        found = (parts(best.tokens)[place] for best, *_ in translator.runner.search(ordered))
        return [decode(output) for output in found]

    references = [decode(parts(target)[0]) for _, target in pairs]
    return references, first(sources, 0), first([swap(x) for x in sources], -1)
