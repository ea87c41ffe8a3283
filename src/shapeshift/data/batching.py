"""Which pairs go into which batch, and batches as tensors.

The plan of an epoch is a pure function of lengths, settings, seed and epoch number: a resumed run
computes the same one again, and every process of a distributed run agrees on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import FlatRows, TokenStore
from shapeshift.data.subwords import BOS, EOS, PAD

Lengths = NDArray[np.integer[Any]]
Indices = NDArray[np.int64]
Ids = Sequence[int] | NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as int64 tensors, padded on the right with PAD.

    Attributes:
        source: ids, then `</s>`. Shape: (B, S).
        target_input: `<s>`, then ids. Shape: (B, T).
        target_output: ids, then `</s>`. Shape: (B, T).
        real: where the tokens of the flattened `source`, and of `target_output`, are that are not
            padding, in order. Shape: (N,) each.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    real: tuple[Tensor, Tensor]

    def __len__(self) -> int:
        """Number of sentence pairs."""
        return len(self.source)

    @property
    def num_source_tokens(self) -> int:
        """Number of real source tokens with `</s>`; known without waiting for the device."""
        return len(self.real[0])

    @property
    def num_target_tokens(self) -> int:
        """Number of real target tokens with `</s>`; see `num_source_tokens`."""
        return len(self.real[1])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on a device. Copies to a GPU come from pinned memory and do not
        block."""
        pin = non_blocking and torch.device(device).type == "cuda"

        def move(x: Tensor) -> Tensor:
            return (x.pin_memory() if pin else x).to(device, non_blocking=non_blocking)

        sides = move(self.source), move(self.target_input), move(self.target_output)
        return Batch(*sides, (move(self.real[0]), move(self.real[1])))


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
    """Return id sequences without special ids, one source and one target of each pair, as a batch,
    in their order."""
    return _batch(_flat(sources), _flat(targets))


def collate(store: TokenStore, indices: Sequence[int] | Indices) -> Batch:
    """Return the pairs of a store with these numbers as a batch, in their order."""
    return _batch(*store.gather(np.asarray(indices, dtype=np.int64)))


def plan_epoch(
    source_lengths: Lengths, target_lengths: Lengths, config: BatchConfig, *, seed: int, epoch: int
) -> list[Indices]:
    """Return the batches of one epoch as arrays of pair numbers; every pair is in one of them.

    The pairs are shuffled, sorted by length within windows of `config.sort_window` pairs (pairs of
    the same length stay shuffled) and cut into batches as large as the limits allow. The batches
    are then shuffled. Lengths are subwords without `</s>`, of shape (num_pairs,).

    Raises:
        ShapeshiftError: a single pair has more than `max_tokens` tokens. To drop it would change
            the data, to keep it would break the limit on memory.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    longest, key = measure(source_lengths, target_lengths, config)
    order = rng.permutation(len(key))
    window = config.sort_window or max(len(key), 1)
    batches: list[Indices] = []
    for start in range(0, len(order), window):
        part = order[start : start + window]
        part = part[np.argsort(key[part], kind="stable")]
        batches += _cut(part, longest, config)
    return [batches[i] for i in rng.permutation(len(batches))]


def plan_in_order(
    source_lengths: Lengths, target_lengths: Lengths, config: BatchConfig
) -> list[Indices]:
    """Return batches from the shortest to the longest pairs, for validation and translation. Pairs
    of the same length keep their order, and nothing is random; otherwise as `plan_epoch`."""
    longest, key = measure(source_lengths, target_lengths, config)
    return _cut(np.argsort(key, kind="stable"), longest, config)


def measure(
    source_lengths: Lengths, target_lengths: Lengths, config: BatchConfig
) -> tuple[Indices, Indices]:
    """Return the size of each pair in a batch, and a sort key: this size, then the sum of both
    sides, so that the shorter side also needs little padding; see `plan_epoch`."""
    source, target = source_lengths.astype(np.int64), target_lengths.astype(np.int64)
    longest = np.maximum(source, target) + 1
    if len(longest) and longest.max() > config.max_tokens:
        worst = int(longest.argmax())
        raise ShapeshiftError(
            f"pair {worst} (counted from 0) has {longest[worst]:,} tokens with </s>, and"
            f" max_tokens={config.max_tokens}; leave such pairs out with"
            f" data.filter.max_length={config.max_tokens - 1}"
        )
    return longest, (longest << 32) | (source + target)


def _cut(order: Indices, longest: Indices, config: BatchConfig) -> list[Indices]:
    """Cut pairs, sorted by length, into batches as large as the limits allow."""
    widths, batches, start = longest[order], [], 0
    while start < len(order):
        # No batch from here on has more pairs than the width of the first one allows. Padded
        # tokens only grow with the pairs, for widths do; the first pair always fits.
        most = config.max_tokens // int(widths[start])
        most = min(most, config.max_sentences or most)
        padded = (part := widths[start : start + most]) * np.arange(1, len(part) + 1)
        stop = start + int(np.searchsorted(padded, config.max_tokens, side="right"))
        batches.append(order[start:stop])
        start = stop
    return batches


def _flat(rows: Sequence[Ids]) -> FlatRows:
    tokens = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
    return FlatRows(tokens, np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))


def _batch(source: FlatRows, target: FlatRows) -> Batch:
    """Return flat rows as a batch, with special ids and padding."""
    source_ids, _ = _pad(source)
    target_ids, is_token = _pad(target)
    target_input = np.full_like(target_ids, PAD)
    target_input[:, :1] = BOS
    target_input[:, 1:][is_token[:, :-1]] = target.tokens
    tensor = torch.from_numpy
    real = tensor(np.flatnonzero(source_ids != PAD)), tensor(np.flatnonzero(target_ids != PAD))
    return Batch(tensor(source_ids), tensor(target_input), tensor(target_ids), real)


def _pad(rows: FlatRows) -> tuple[Indices, NDArray[np.bool_]]:
    """Return padded rows with `</s>` after each, and the mask of their own ids; both (B, longest +
    1)."""
    width = int(rows.lengths.max(initial=-1)) + 1
    table = np.full((len(rows.lengths), width), PAD, dtype=np.int64)
    is_token = np.arange(width) < rows.lengths[:, None]
    table[is_token] = rows.tokens  # row by row, as they lie in `tokens`
    table[np.arange(len(table)), rows.lengths] = EOS
    return table, is_token
