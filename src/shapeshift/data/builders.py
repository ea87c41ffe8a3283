"""The papers' recipes, which filter, join or keep encoded pairs one at a time.

Vanilla, Extrapolate and Interpolate: SHAPE (Kiyono et al. 2021), section 3.1 and Table 3.
LengthSlice: NHK (2024), Figure 3. Lengths are subwords without `<s>` and `</s>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import Extrapolate, Interpolate, LengthSlice, OwnRecipe, Recipe, Split
from shapeshift.data.filter import Dropped, empty_side, over_limit
from shapeshift.data.subwords import PAD, SEPARATOR, Subwords, join_ids


class Pair(NamedTuple):
    """A sentence pair: its text and its subword ids, without `<s>` and `</s>`.

    Attributes:
        source, target: as the corpus has them; a translation is scored against `target`.
        source_ids, target_ids: of the text, or, where the target is tokenised and split and
            `target` is its raw form, of the split one.
        number: of the pair in its split of the corpus, from 0; of joined pairs, that of the first.
    """

    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]
    number: int = 0


def build(
    pairs: Iterable[Pair],
    recipe: Recipe,
    split: Split,
    dropped: Dropped,
    file_of: Callable[[int], int] = lambda number: 0,
    subwords: Subwords | None = None,
) -> Iterator[Pair]:
    """Yield the pairs that a recipe makes of a split, and count in `dropped` those that are left
    out, by the first reason that fits. `file_of` says which file the pair with a number is from;
    `subwords` encode text that a recipe of one's own has changed.

    A train pair without a subword on one side is dropped, whatever the recipe. Valid and test
    lose nothing, so that scores of two recipes are over the same sentences.

    Interpolate's groups follow one another without overlap. A last group of fewer than `num_joined`
    pairs is kept as it is. (The paper's 450K groups of ten out of 4.5M pairs leave open what it did
    with a rest.) In train they run on over file boundaries. Valid and test are joined file by file:
    the paper has a score of each newstest.
    """
    kept = _kept(pairs, recipe, dropped, subwords) if split == "train" else iter(pairs)
    if not isinstance(recipe, Interpolate):
        yield from kept
        return
    in_one = [(0, kept)] if split == "train" else groupby(kept, lambda pair: file_of(pair.number))
    for _, file in in_one:
        while group := list(islice(file, recipe.num_joined)):
            yield Pair(
                source=SEPARATOR.join(pair.source for pair in group),
                target=SEPARATOR.join(pair.target for pair in group),
                source_ids=join_ids([pair.source_ids for pair in group]),
                target_ids=join_ids([pair.target_ids for pair in group]),
                number=group[0].number,
            )


def _kept(
    pairs: Iterable[Pair], recipe: Recipe, dropped: Dropped, subwords: Subwords | None
) -> Iterator[Pair]:
    own = recipe.find() if isinstance(recipe, OwnRecipe) else None
    for pair in pairs:
        reason, made = _why_dropped(pair, recipe), pair
        if isinstance(recipe, OwnRecipe) and own and reason is None:
            made = own(pair, **recipe.options)
            if not isinstance(made, Pair | None):
                problem = f"expected a Pair or None, got {type(made).__name__}"
                remedy = "return the pair, or pair._replace(…)"
                raise ShapeshiftError(f"{recipe.function}: {problem}; {remedy}")
            if made is not None and made is not pair and subwords is not None:
                made = _encoded(made, pair, recipe.function, subwords)
            reason = f"left out by {recipe.function}" if made is None else empty_side(made)
        if reason:
            dropped.add(reason, pair)
        else:
            yield made


def _encoded(made: Pair, pair: Pair, function: str, subwords: Subwords) -> Pair:
    """Return the pair that a function has made of another, with the subwords of text that it has
    changed and whose ids it has left."""
    sizes = dict(zip(("source", "target"), subwords.sizes, strict=True))
    for side, encode in (("source", subwords.encode_source), ("target", subwords.encode_target)):
        text, ids = getattr(made, side), getattr(made, f"{side}_ids")
        if text != getattr(pair, side) and ids == getattr(pair, f"{side}_ids"):
            if subwords.presplit:
                raise ShapeshiftError(
                    f"{function} changes the {side} of a pair, whose subwords another program has"
                    f" made; change {side}_ids as well"
                )
            changed: Any = {f"{side}_ids": encode([text])[0]}
            made = made._replace(**changed)
        elif not isinstance(ids, list) or not all(x in range(PAD + 1, sizes[side]) for x in ids):
            raise ShapeshiftError(
                f"{function}: {side}_ids of pair {pair.number + 1} must be a list of whole numbers"
                f" above {PAD} (padding) and below {sizes[side]:,}, got {ids!r}"
            )
    return made


def _why_dropped(pair: Pair, recipe: Recipe) -> str | None:
    """Return why a pair is not in the training data, or None if it is."""
    if reason := empty_side(pair):
        return reason
    source = len(pair.source_ids)
    match recipe:
        case Extrapolate(max_length=limit):
            return over_limit(pair, limit)
        case LengthSlice(min_length=low) if source < low:
            return f"source under {low} subwords"
        case LengthSlice(max_length=high) if high is not None and source >= high:
            return f"source of {high} subwords up"
    return None
