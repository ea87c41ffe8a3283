"""The batches of an update, and what to do with one that is too large for the memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from shapeshift.data.store import TokenStore
from shapeshift.errors import ShapeshiftError
from shapeshift.seeds import derive
from shapeshift.training.guards import Pairs


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A batch of an update, or a part of one.

    Attributes:
        batch: the batch's number in its update, counted over all processes.
        pairs: the numbers of its pairs.
        part: which part, such as `01`: the second half of the first half; empty for a whole batch.
    """

    batch: int
    pairs: Pairs
    part: str = ""

    def seed(self, seed: int, stream: str, update: int) -> int:
        """Return the seed of a stream of draws. It depends on the batch's number in the update and
        not on the process, so any number of processes draws the same."""
        labels = (stream, update, self.batch) + ((self.part,) if self.part else ())
        return derive(seed, *labels)

    def halves(self) -> list[MicroBatch]:
        """Return two micro-batches with half of the pairs each."""
        middle = len(self.pairs) // 2
        parts = (self.pairs[:middle], self.pairs[middle:])
        return [MicroBatch(self.batch, pairs, f"{self.part}{n}") for n, pairs in enumerate(parts)]


class TooLargeError(ShapeshiftError):
    """The memory does not suffice for a micro-batch of an update.

    Attributes:
        micro_batch: the one that did not fit.
    """

    def __init__(
        self, micro_batch: MicroBatch, store: TokenStore, update: int, device: torch.device
    ):
        source, target = (
            int(lengths[micro_batch.pairs].max()) + 1
            for lengths in (store.source_lengths, store.target_lengths)
        )
        super().__init__(
            f"out of memory on {device} in update {update}, with a batch of"
            f" {len(micro_batch.pairs)} pairs of at most {source} source and {target} target"
            " tokens; lower training.batch.max_tokens (and raise training.accumulation by as much),"
            " or set training.split_on_oom=true"
        )
        self.micro_batch = micro_batch


@contextmanager
def naming_the_batch(
    micro_batch: MicroBatch, store: TokenStore, update: int, device: torch.device
) -> Iterator[None]:
    """Raise `TooLargeError` where PyTorch says that memory ran out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TooLargeError(micro_batch, store, update, device) from error


@contextmanager
def naming_the_step(update: int, device: torch.device) -> Iterator[None]:
    """Raise `ShapeshiftError` where memory runs out in the optimiser's step, whose first one makes
    its moments: smaller batches would not help there."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ShapeshiftError(
            f"out of memory on {device} in the optimiser's step of update {update}: weights,"
            " gradients and two moments of each do not fit; lower model.dim, model.ff_dim or the"
            " number of layers, or share them among several GPUs with training.parallel=fsdp"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether PyTorch, on a GPU or a CPU, or Python has no more memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def split(micro_batches: list[MicroBatch], failed: MicroBatch) -> list[MicroBatch]:
    """Return the micro-batches, with that which failed replaced by its halves."""
    return [
        part
        for micro_batch in micro_batches
        for part in (micro_batch.halves() if micro_batch is failed else [micro_batch])
    ]
