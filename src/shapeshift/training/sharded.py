"""A share of the model in each process, for models that do not fit (FSDP2)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from shapeshift.model import Transformer
from shapeshift.training.config import OptimizerConfig
from shapeshift.training.optim import build_optimizer
from shapeshift.training.parallel import Parallel
from shapeshift.training.strategy import Objective, local


class Sharded:
    """A share of every weight, gradient and moment in each process (FSDP2, `fully_shard`).

    A layer's weights are gathered for its forward and backward pass, and its gradients are reduced
    after each backward pass. The whole model is on the CPU while it is loaded (in every process)
    and saved (in the main process).

    Args:
        model: on the CPU; its layers are changed in place.
        device: where to put the shares.
        parallel: the processes.
        optimizer: the settings of the optimiser.
    """

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        parallel: Parallel,
        optimizer: OptimizerConfig,
    ):
        self._settings = optimizer
        self._blueprint = deepcopy(model).to("meta")
        self._mesh = init_device_mesh(device.type, (parallel.world_size,))
        for layer in _independent([*model.encoder, *model.decoder]):
            fully_shard(layer, mesh=self._mesh)
        objective: nn.Module = Objective(model)
        # By default, parameters outside the layers would stay gathered after a forward pass.
        fully_shard(objective, mesh=self._mesh, reshard_after_forward=True)
        self.train_loss = self.valid_loss = objective
        self._shares = list(model.parameters())
        self._model = model
        self._device = device
        self.optimizer = build_optimizer(optimizer, self._shares)

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients in every backward pass: whole ones need not fit."""
        return nullcontext()

    def finish(self) -> None:
        """Do nothing: the backward passes have reduced the gradients."""

    def empty(self) -> tuple[nn.Module, Optimizer]:
        """Return another model on the CPU, with arbitrary weights."""
        model = deepcopy(self._blueprint).to_empty(device="cpu")
        return model, build_optimizer(self._settings, model.parameters())

    def scatter(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Keep this process's share of what all have loaded."""
        shapes = []
        with torch.no_grad():
            for own, whole in zip(self._shares, model.parameters(), strict=True):
                local(own).copy_(local(self._shard(whole, own)))
                shapes.append((own, whole.shape))
        state = {
            index: {
                key: self._shard(value, own) if value.shape == shape else value
                for key, value in optimizer.state_dict()["state"].get(index, {}).items()
            }
            for index, (own, shape) in enumerate(shapes)
        }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict(
            {"state": {i: values for i, values in state.items() if values}, "param_groups": groups}
        )

    def gather(self, keep: bool) -> tuple[nn.Module, Optimizer]:
        """Return another model on the CPU, gathered from all processes."""
        model, optimizer = self.empty() if keep else (self._model, self.optimizer)
        for own, whole in zip(self._shares, model.parameters(), strict=True):
            weight = _whole(own.detach())
            state = {key: _whole(value) for key, value in self.optimizer.state[own].items()}
            if keep:
                with torch.no_grad():
                    whole.copy_(weight)
                optimizer.state[whole] = state
        return model, optimizer

    def _shard(self, whole: Tensor, like: Tensor) -> Tensor:
        assert isinstance(like, DTensor)
        return distribute_tensor(
            whole.detach().to(self._device), self._mesh, like.placements, src_data_rank=None
        )


def _whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def _independent(layers: list[nn.Module]) -> list[nn.Module]:
    """Return the layers that share no parameter with another layer, as FSDP's groups need."""
    owners: dict[nn.Parameter, int] = {}
    for layer in layers:
        for parameter in layer.parameters():
            owners[parameter] = owners.get(parameter, 0) + 1
    return [layer for layer in layers if all(owners[p] == 1 for p in layer.parameters())]
