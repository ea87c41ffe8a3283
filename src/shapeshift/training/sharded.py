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
from shapeshift.training.parallel import Parallel
from shapeshift.training.strategy import BuildOptimizer, Objective, local


class Sharded:
    """A share of every weight, gradient and moment in each process (FSDP2, `fully_shard`).

    A layer's weights are put together for its forward and for its backward pass, and its gradients
    are summed and shared out after each backward pass. A whole model is on the CPU for the time of
    loading (in every process) and of saving (in the main one).

    Args:
        model: on the CPU; its layers are changed in place.
        device: where the shares are to be.
        parallel: the processes.
        build_optimizer: makes the optimiser.
    """

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        parallel: Parallel,
        build_optimizer: BuildOptimizer,
    ):
        self._build = build_optimizer
        self._blueprint = deepcopy(model).to("meta")
        self._mesh = init_device_mesh(device.type, (parallel.world_size,))
        for layer in _independent([*model.encoder, *model.decoder]):
            fully_shard(layer, mesh=self._mesh)
        objective: nn.Module = Objective(model)
        # By default what is in no layer would stay together after a forward pass, and `parameters`
        # would then not be the shares.
        fully_shard(objective, mesh=self._mesh, reshard_after_forward=True)
        self.train_loss = self.valid_loss = objective
        self._shares = list(model.parameters())
        self._model = model
        self._device = device
        self.optimizer = build_optimizer(self._shares)

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Gradients travel with every backward pass: whole ones need not fit."""
        return nullcontext()

    def finish(self) -> None:
        """Nothing is left to do."""

    def empty(self) -> tuple[nn.Module, Optimizer]:
        """A model of its own on the CPU; its weights are arbitrary."""
        model = deepcopy(self._blueprint).to_empty(device="cpu")
        return model, self._build(model.parameters())

    def scatter(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Each process keeps its share of what all have loaded."""
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
        """A model of its own on the CPU, put together from all processes."""
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
    """Return the layers that share no parameter with another: a group of FSDP owns its own."""
    owners: dict[nn.Parameter, int] = {}
    for layer in layers:
        for parameter in layer.parameters():
            owners[parameter] = owners.get(parameter, 0) + 1
    return [layer for layer in layers if all(owners[p] == 1 for p in layer.parameters())]
