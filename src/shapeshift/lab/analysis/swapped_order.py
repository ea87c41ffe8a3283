"""Does a model translate a sentence alike at the beginning and at the end of a long sequence?

Kiyono et al. 2021 (SHAPE), section 3.2 and Table 1. Training pairs of Interpolate, ten sentences
joined into one, are translated twice: in the original order (X_1, …, X_10), and swapped, with the
first sentence moved to the end: (X_2, …, X_10, X_1). What is scored is the translation of X_1
alone. Training data, so that no sentence is unseen and its place is all that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import SEP
from shapeshift.decoding.search import Hypothesis
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import Score, score_corpus
from shapeshift.evaluation.tokenizers import DEFAULT

NUM_PAIRS = 10_000
"""Of the paper's sample."""

_CHUNK = 1_000

Pair = tuple[list[int], list[int]]


class Decoder(Protocol):
    """Turns target ids into text, as `shapeshift.data.subwords.Subwords` does."""

    def decode_target(self, ids: list[int], /) -> str:
        """Return the text of target ids."""
        ...


class Searcher(Protocol):
    """The part of `shapeshift.decoding.translator.Translator` that is called here."""

    @property
    def subwords(self) -> Decoder:
        """Its subword models."""
        ...

    def search(self, sources: Sequence[Sequence[int]], /) -> list[list[Hypothesis]]:
        """Return the best hypotheses of every source, in order."""
        ...


@dataclass(frozen=True)
class Order:
    """What came of one order of the sentences.

    Attributes:
        outputs: the translations of X_1.
        bleu: of these.
        num_misparted: outputs that have another number of parts than their source.
    """

    outputs: tuple[str, ...]
    bleu: Score
    num_misparted: int


@dataclass(frozen=True)
class SystemOrder:
    """A row of the table: one system, both orders, and the references of X_1."""

    name: str
    references: tuple[str, ...]
    original: Order
    swapped: Order

    @property
    def drop(self) -> float:
        """How many points of BLEU the swap costs."""
        return self.original.bleu.value - self.swapped.bleu.value


@dataclass(frozen=True)
class SwappedOrder:
    """The data of the table: how many sequences were translated, and what came out."""

    num_pairs: int
    systems: tuple[SystemOrder, ...]


def sample(store: TokenStore, num_pairs: int = NUM_PAIRS, *, seed: int = 0) -> list[Pair]:
    """Draw joined pairs from a training store, without replacement, in the order of the store.

    A last pair that is joined of nothing is left out: it is what joining had left over.

    Args:
        store: of an Interpolate dataset.
        num_pairs: how many; all, if there are not so many.
        seed: of the draw.

    Raises:
        ShapeshiftError: a pair is not made of several.
    """
    draw = np.random.default_rng(seed)
    size = len(store) - _leaves_one(store)
    numbers = draw.choice(size, size=min(num_pairs, size), replace=False)
    pairs = []
    for number in sorted(numbers.tolist()):
        source, target = (side.tolist() for side in store[number])
        if not source.count(SEP) == target.count(SEP) > 0:
            raise ShapeshiftError(
                f"pair {number} (counted from 0) has {source.count(SEP)} and {target.count(SEP)}"
                " separators; expected joined sentences, as data.dataset.name=interpolate makes"
                " them",
                path=store.directory,
            )
        pairs.append((source, target))
    return pairs


def _leaves_one(store: TokenStore) -> bool:
    last = len(store) - 1
    return last > 0 and not any(SEP in side for side in store[last])


def parts(ids: Sequence[int]) -> list[list[int]]:
    """Return the sentences of a joined sequence, without the separators."""
    found: list[list[int]] = [[]]
    for each in ids:
        if each == SEP:
            found.append([])
        else:
            found[-1].append(each)
    return found


def swap(ids: Sequence[int]) -> list[int]:
    """Move the first sentence of a joined sequence to its end: (X_2, …, X_n, X_1)."""
    first = list(ids).index(SEP)
    return [*ids[first + 1 :], SEP, *ids[:first]]


def compute(
    systems: Mapping[str, Searcher],
    pairs: Sequence[Pair],
    on_translate: Callable[[str, int, int], None] | None = None,
    *,
    tokenizer: str = DEFAULT,
) -> SwappedOrder:
    """Translate all pairs in both orders and score the translations of the first sentence.

    It is the first part of the output in the original order and the last one in the swapped order,
    parts being what stands between separators; how many outputs have another number of parts than
    their source is counted. (The paper does not say how it finds the sentence.) References are
    decoded from their ids, so they have gone through the subword model's normalisation; a subword
    outside the vocabulary is `⁇` on both sides.

    Args:
        systems: name → a translator of a model that was trained on these data.
        pairs: joined ids, see `sample`.
        on_translate: told of a system, sequences done and their number, both orders together.
        tokenizer: that BLEU splits text with, see `evaluation.tokenizers`.

    Raises:
        ShapeshiftError: no systems, no pairs, or a tokenizer that cannot be used.
    """
    if not systems or not pairs:
        raise ShapeshiftError(
            f"{len(systems)} systems and {len(pairs)} pairs: expected one of each at least"
        )
    return SwappedOrder(
        len(pairs),
        tuple(
            _compare(name, searcher, pairs, on_translate, tokenizer)
            for name, searcher in systems.items()
        ),
    )


def _compare(
    name: str,
    searcher: Searcher,
    pairs: Sequence[Pair],
    on_translate: Callable[[str, int, int], None] | None,
    tokenizer: str,
) -> SystemOrder:
    original = [source for source, _ in pairs]
    swapped = [swap(source) for source in original]
    outputs = _search(searcher, name, [*original, *swapped], on_translate)
    decode = searcher.subwords.decode_target
    references = tuple(decode(parts(target)[0]) for _, target in pairs)
    num_parts = [len(parts(source)) for source in original]

    def score(found: list[list[list[int]]], place: int) -> Order:
        texts = tuple(decode(output[place]) for output in found)
        [bleu] = score_corpus(texts, references, ("bleu",), tokenizer=tokenizer)
        wrong = sum(len(output) != wanted for output, wanted in zip(found, num_parts, strict=True))
        return Order(texts, bleu, wrong)

    half = len(pairs)
    original_order, swapped_order = score(outputs[:half], 0), score(outputs[half:], -1)
    return SystemOrder(name, references, original_order, swapped_order)


def _search(
    searcher: Searcher,
    name: str,
    sources: list[list[int]],
    on_translate: Callable[[str, int, int], None] | None,
) -> list[list[list[int]]]:
    """Return the parts of the best translation of each source."""
    found: list[list[list[int]]] = []
    for start in range(0, len(sources), _CHUNK):
        for hypotheses in searcher.search(sources[start : start + _CHUNK]):
            found.append(parts(hypotheses[0].tokens))
        if on_translate is not None:
            on_translate(name, len(found), len(sources))
    return found
