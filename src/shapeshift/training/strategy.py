"""How a model is distributed over the processes: whole in each (`Replicated`), or a share in each
(`Sharded`)."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from shapeshift.model import Transformer, label_smoothed_loss
from shapeshift.training.config import OptimizerConfig
from shapeshift.training.optim import build_optimizer
from shapeshift.training.parallel import Parallel


class Objective(nn.Module):
    """The loss as a module, so that DDP and FSDP see every use of a parameter."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(
        self,
        source: Tensor,
        target_input: Tensor,
        target_output: Tensor,
        epsilon: float,
        real: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the summed loss, smoothed (with gradient) and not; see `label_smoothed_loss`."""
        loss = label_smoothed_loss(self.model, source, target_input, target_output, epsilon, real)
        return loss.smoothed, loss.nll


class Replicated:
    """The whole model in each process.

    `Sharded` has the same attributes and methods.

    Attributes:
        train_loss, valid_loss: compute the loss in training and validation, see `Objective`.
        optimizer: of the parameters in this process.

    Args:
        model: on any device.
        device: where to put it.
        parallel: the processes.
        optimizer: the settings of the optimiser.
        overlap: whether gradients are exchanged during the backward pass (DDP). They must not be
            where a backward pass may fail and be repeated.
    """

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        parallel: Parallel,
        optimizer: OptimizerConfig,
        *,
        overlap: bool = True,
    ):
        self._model = model.to(device)
        self._parallel = parallel
        self.optimizer = build_optimizer(optimizer, model.parameters())
        self.train_loss: nn.Module = Objective(model)
        self.valid_loss: nn.Module = self.train_loss
        self._ddp: DistributedDataParallel | None = None
        if parallel.world_size > 1 and overlap:
            with warnings.catch_warnings():  # newer releases rename `broadcast_buffers`
                warnings.simplefilter("ignore", FutureWarning)
                self._ddp = DistributedDataParallel(
                    self.train_loss, broadcast_buffers=False, gradient_as_bucket_view=True
                )
            self.train_loss = self._ddp

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Return the context for a forward and backward pass, which exchanges gradients if it is
        the last of an update."""
        if self._ddp is None or last:
            return nullcontext()
        no_sync: AbstractContextManager[None] = self._ddp.no_sync()
        return no_sync

    def finish(self) -> None:
        """Average the gradients over the processes, unless the backward passes have done it."""
        if self._ddp is None and self._parallel.world_size > 1:
            for parameter in self._model.parameters():
                if parameter.grad is not None:
                    self._parallel.all_reduce_sum(parameter.grad.div_(self._parallel.world_size))

    def empty(self) -> tuple[nn.Module, Optimizer]:
        """Return a whole model and its optimiser to load a checkpoint into: here, the own ones."""
        return self._model, self.optimizer

    def scatter(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Continue from what was loaded into the result of `empty`."""

    def gather(self, keep: bool) -> tuple[nn.Module, Optimizer]:
        """Return the whole model and its optimiser, to be saved. All processes must call this; the
        result is complete where `keep` is true."""
        return self._model, self.optimizer


def local(tensor: Tensor) -> Tensor:
    """Return this process's share of a sharded tensor; any other tensor as it is."""
    # Without isinstance: importing DTensor takes half a second, and few runs need it.
    share: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return share
