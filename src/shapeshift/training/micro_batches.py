"""The batches of an update, and errors for those that are too large for the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        part: empty for a whole batch; `01` is the second half of its first half.
    """

    batch: int
    pairs: Pairs
    part: str = ""

    def seed(self, seed: int, update: int) -> int:
        """Return the seed of dropout and offsets. It depends on the batch's number in the update
        and not on the process, so any number of processes draws the same."""
        labels = ("dropout", update, self.batch) + ((self.part,) if self.part else ())
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


def step_too_large(update: int, device: torch.device) -> ShapeshiftError:
    """Return the error for the optimiser's step, which makes its moments in the first update:
    smaller batches do not help."""
    return ShapeshiftError(
        f"out of memory on {device} in the optimiser's step of update {update}: weights,"
        " gradients and two moments of each do not fit; lower model.dim, model.ff_dim or the"
        " number of layers, or share them among several GPUs with training.parallel=fsdp"
    )


@contextmanager
def out_of_memory_as(make_error: Callable[[], ShapeshiftError]) -> Iterator[None]:
    """Raise the error that is made where PyTorch, on a GPU or a CPU, or Python runs out of memory
    in the block."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        exhausted = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not exhausted and "DefaultCPUAllocator" not in str(error):
            raise
        raise make_error() from error
