"""The processes that train one model together, started by torchrun or SLURM.

Every process goes through the same updates. What only one of them does (files, log, terminal) is
the main process's, which has rank 0; the others wait for it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import choose_device

SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX

T = TypeVar("T")

_PATIENCE = timedelta(days=7)
"""How long the others wait while the main process prepares data, translates or saves. If it dies,
its connections close, and they stop at once."""


def _read_environment() -> tuple[int, int, int]:
    """Return WORLD_SIZE, RANK and LOCAL_RANK, or raise `ShapeshiftError`."""
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")
    with suppress(KeyError, ValueError):
        world_size, rank, local_rank, _ = (int(os.environ[name]) for name in names)
        if os.environ["MASTER_ADDR"] and 0 <= max(rank, local_rank) < world_size:
            return world_size, rank, local_rank
    raise ShapeshiftError(
        "WORLD_SIZE is set, and RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are not as torchrun"
        " sets them; start the processes with torchrun, or unset WORLD_SIZE to train in one process"
    )


class Parallel:
    """This process and the others that train the same model, which `join` connects. For a single
    process, which is the default, the methods do nothing.

    Args:
        rank: the number of this process, from 0.
        world_size: how many processes there are.
        local_rank: its number on its machine; None for a process that is alone.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, local_rank: int | None = None):
        self.rank, self.world_size, self.local_rank = rank, world_size, local_rank
        self._patient: dist.ProcessGroup | None = None
        if world_size > 1:
            self._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[tuple[int, T]]:
        """Return every `world_size`-th item with its number, starting at the item `rank`."""
        return list(enumerate(items))[self.rank :: self.world_size]

    def average_gradients(self, module: nn.Module) -> nn.Module:
        """Return the module, whose backward pass averages gradients over all processes (DDP)."""
        if self.world_size == 1:
            return module
        with warnings.catch_warnings():  # newer releases rename `broadcast_buffers`
            warnings.simplefilter("ignore", FutureWarning)
            return DistributedDataParallel(
                module, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def all_reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType = SUM) -> Tensor:
        """Replace values by their sums, or maxima, over all processes, in place; return them."""
        if self.world_size > 1:
            dist.all_reduce(values, operation)
        return values

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let the main process go through the block before the others enter it."""
        if not self.is_main:
            self._wait()
        yield
        if self.is_main:
            self._wait()

    def broadcast(self, update: int | None) -> int | None:
        """Return the main process's `update`."""
        if self._patient is None:
            return update
        number = torch.tensor(-1 if update is None else update)
        dist.broadcast(number, 0, group=self._patient)
        return None if number < 0 else int(number)

    def _wait(self) -> None:
        if self._patient is not None:
            dist.barrier(group=self._patient)


@contextmanager
def join(config: TrainingConfig) -> Iterator[Parallel]:
    """Connect with the other processes that torchrun has started, if it has, until the block ends.
    GPUs talk over NCCL, CPUs over gloo.

    Raises:
        ShapeshiftError: if the environment is not torchrun's, the batches of an update cannot be
            shared evenly, a process has no GPU of its own, or one of the processes is lost.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Parallel()
        return
    world_size, rank, local_rank = _read_environment()
    config.check_shared(world_size)
    device = choose_device(config.device, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with _naming_the_lost():
        timeout = timedelta(seconds=config.rank_timeout_s)
        store, *_ = next(rendezvous("env://", timeout=timeout))
        # torchrun keeps the store when it restarts the processes, and with it outdated addresses.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(f"attempt-{attempt}", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=world_size,
            timeout=timeout,
        )
        try:
            yield Parallel(rank, world_size, local_rank)
        finally:
            dist.destroy_process_group()


@contextmanager
def _naming_the_lost() -> Iterator[None]:
    """Replace the libraries' errors for a process that has ended or does not answer by one line."""
    try:
        yield
    except RuntimeError as error:
        words = " ".join(str(error).split())
        # gloo has no exception of its own.
        if not isinstance(error, dist.DistError) and "gloo" not in words.lower():
            raise
        reason = re.sub(r"^\[[^]]*\] ", "", words).split(". ")[0][:150]
        raise ShapeshiftError(
            f"lost another process of the group ({reason}); see its error, and run the same command"
            " again: it continues from the newest checkpoint"
        ) from error
