"""Which sentences are computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.invariance import Frame


def batches(
    lengths: Sequence[int],
    config: DecodingConfig,
    frames: Sequence[tuple[Frame, ...]] | None = None,
) -> Iterator[list[int]]:
    """Yield the numbers of sentences in batches of like length, the longest first, so that what
    does not fit into memory fails at once.

    Args:
        lengths: tokens of each sentence, or of the longer side of each pair, with `</s>`; what has
            0 stands in no batch.
        config: how many tokens and sentences a batch has at most.
        frames: of each sentence, or of each side of a pair. Only what has the same ones shares a
            batch, and as many as there is room for.
    """

    def widths(number: int) -> tuple[int, ...]:
        return () if frames is None else tuple(frame.width for frame in frames[number])

    numbers = [number for number, length in enumerate(lengths) if length]
    numbers.sort(key=lambda number: (widths(number), lengths[number]), reverse=True)
    while numbers:
        first = numbers[0]
        size = min(max(1, config.max_tokens // lengths[first]), config.max_sentences)
        if frames is not None:
            size = min(size, *(frame.rows for frame in frames[first]))
        batch = [number for number in numbers[:size] if widths(number) == widths(first)]
        yield batch
        numbers = numbers[len(batch) :]
