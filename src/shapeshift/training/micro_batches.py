"""The batches of an update, and errors for those that are too large for the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

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


class OutOfMemoryError(ShapeshiftError):
    """The memory does not suffice for an update."""


@contextmanager
def naming_out_of_memory(device: torch.device, describe: Callable[[], str]) -> Iterator[None]:
    """Raise `OutOfMemoryError` where PyTorch, on a GPU or a CPU, or Python runs out of memory.

    Args:
        device: that is computed on.
        describe: returns what did not fit, and what to change.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        exhausted = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not exhausted and "DefaultCPUAllocator" not in str(error):
            raise
        raise OutOfMemoryError(f"out of memory on {device} {describe()}") from error
