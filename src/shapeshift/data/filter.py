"""Which pairs of the corpus are left out before a recipe uses the others (`data.filter`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from pydantic import Field

from shapeshift._system.schema import Strict

if TYPE_CHECKING:
    from shapeshift.data.builders import Pair
    from shapeshift.data.config import Split

MAX_CHARACTERS = 64
"""Characters for each permitted subword above which a text counts as too long without being
encoded, which takes much memory. (SentencePiece's subwords have 16 characters at most.)"""


class FilterConfig(Strict):
    """Which pairs are left out. A pair with an empty side is left out of train, valid and test; all
    other rules concern train alone, so that test scores of two filters compare. Lengths are
    subwords without `</s>`. The counts, and file and line of the first pair of each kind, stand in
    the report of the prepared data.

    Attributes:
        max_length: most subwords of either side.
        max_ratio: most subwords of the longer side for each subword of the shorter one.
        drop_duplicates: leave out a pair whose two sides an earlier pair has.
    """

    max_length: int | None = Field(default=None, ge=1)
    max_ratio: float | None = Field(default=None, ge=1.0)
    drop_duplicates: bool = False


class Dropped(Counter[str]):
    """Pairs that are left out, by reason.

    Attributes:
        first: the number of the first pair of each reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, int] = {}

    def add(self, reason: str, pair: Pair) -> None:
        """Count a pair."""
        self[reason] += 1
        self.first.setdefault(reason, pair.number)


def filter_pairs(
    pairs: Iterable[Pair], config: FilterConfig, split: Split, dropped: Dropped
) -> Iterator[Pair]:
    """Yield the pairs of a split that stay, and count the others by the first reason that fits."""
    seen: set[bytes] = set()
    for pair in pairs:
        reason = empty_side(pair)
        if split == "train":
            reason = reason or _why_dropped(pair, config)
            if config.drop_duplicates and not reason:
                key = blake2b(f"{pair.source}\n{pair.target}".encode(), digest_size=8).digest()
                reason = "repeated" if key in seen else None
                seen.add(key)
        if reason:
            dropped.add(reason, pair)
        else:
            yield pair


def empty_side(pair: Pair) -> str | None:
    """Return which side of a pair has no subword, if one has none."""
    if not pair.source_ids:
        return "empty source"
    return None if pair.target_ids else "empty target"


def over_limit(pair: Pair, limit: int) -> str | None:
    """Return which side of a pair has more subwords than the limit, if one has, as a reason."""
    if len(pair.source_ids) > limit:
        return f"source over {limit} subwords"
    return f"target over {limit} subwords" if len(pair.target_ids) > limit else None


def _why_dropped(pair: Pair, config: FilterConfig) -> str | None:
    if config.max_length is not None and (reason := over_limit(pair, config.max_length)):
        return reason
    ratio, lengths = config.max_ratio, (len(pair.source_ids), len(pair.target_ids))
    # Multiplied, a pair at the limit may seem to exceed it: 1.15 * 100 is below 115.
    if ratio is not None and max(lengths) / min(lengths) > ratio:
        return f"over {ratio:g} times as many subwords on one side"
    return None
