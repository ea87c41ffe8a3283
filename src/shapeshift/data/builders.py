"""The datasets of the papers, made from encoded pairs as they stream by.

Vanilla, Extrapolate and Interpolate: SHAPE (Kiyono et al. 2021), section 3.1 and Table 3.
LengthSlice: NHK (2024), Figure 3. Lengths are subwords without `<s>` and `</s>`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from shapeshift.data.config import Dataset, Extrapolate, Interpolate, LengthSlice, Split
from shapeshift.data.subwords import SEPARATOR, join_ids


class Pair(NamedTuple):
    """A sentence pair: its text and its subword ids, without `<s>` and `</s>`.

    Attributes:
        source, target: as the corpus has them; a translation is scored against `target`.
        source_ids, target_ids: of the text, or, where the target is tokenised and split and
            `target` is its raw form, of the split one.
    """

    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]


def build(
    pairs: Iterable[Pair],
    dataset: Dataset,
    split: Split,
    dropped: Counter[str],
    ends: Sequence[int] = (),
) -> Iterator[Pair]:
    """Yield the pairs of one split of a dataset, and count in `dropped` those that are left out, by
    the first reason that fits.

    A train pair without a subword on one side is dropped, whatever the dataset. Valid and test
    lose nothing, so that scores of two datasets are over the same sentences.

    Interpolate's groups follow one another without overlap. A last group of fewer than `num_joined`
    pairs is kept as it is. (The paper's 450K groups of ten out of 4.5M pairs leave open what it did
    with a rest.) In train they run on over file boundaries, as of what was dropped no boundary is
    left. Valid and test are joined file by file: the paper has a score of each newstest.

    Args:
        pairs: of all files of the split.
        dataset: what is built.
        split: of the corpus.
        dropped: reason → number of pairs.
        ends: of valid or test, the number of pairs up to the end of each file.
    """
    kept = _kept(pairs, dataset, dropped) if split == "train" else iter(pairs)
    if not isinstance(dataset, Interpolate):
        yield from kept
        return
    for begin, end in pairwise((0, *(ends or (sys.maxsize,)))):
        file = islice(kept, end - begin)
        while group := list(islice(file, dataset.num_joined)):
            yield Pair(
                source=SEPARATOR.join(pair.source for pair in group),
                target=SEPARATOR.join(pair.target for pair in group),
                source_ids=join_ids([pair.source_ids for pair in group]),
                target_ids=join_ids([pair.target_ids for pair in group]),
            )


def _kept(pairs: Iterable[Pair], dataset: Dataset, dropped: Counter[str]) -> Iterator[Pair]:
    for pair in pairs:
        if reason := _why_dropped(pair, dataset):
            dropped[reason] += 1
        else:
            yield pair


def _why_dropped(pair: Pair, dataset: Dataset) -> str | None:
    """Return why a pair is not in the training data, or None if it is."""
    source, target = len(pair.source_ids), len(pair.target_ids)
    if not source or not target:
        return "empty target" if source else "empty source"
    match dataset:
        case Extrapolate(max_length=limit) if max(source, target) > limit:
            return f"{'source' if source > limit else 'target'} over {limit} subwords"
        case LengthSlice(min_length=low) if source < low:
            return f"source under {low} subwords"
        case LengthSlice(max_length=high) if high is not None and source >= high:
            return f"source of {high} subwords up"
    return None
