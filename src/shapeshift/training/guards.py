"""Prevents steps of the optimiser on a loss or gradient that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from shapeshift.errors import ShapeshiftError
from shapeshift.model import Loss
from shapeshift.training.parallel import Parallel

Pairs = NDArray[np.int64]
"""The numbers of the pairs of a batch."""

MOST_NAMED = 20
"""How many pairs of a batch an error names."""


class Guard:
    """Judges each update between its backward pass and its step.

    On a CPU the verdict is read at once. On a GPU that would make the host wait: there the verdict
    is given to the fused optimiser as `found_inf`, which then leaves weights and moments as they
    are, and `check` reads it, and raises, before anything is logged or saved. RAdam is not fused,
    so with it the host waits.

    Args:
        model: after its backward pass, when `judge` is called.
        optimizer: of its parameters.
        parallel: the processes; all come to the same verdict.
        deferred: whether the verdict stays on the device; by default, on a GPU if possible.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        parallel: Parallel,
        *,
        deferred: bool | None = None,
    ):
        self._parameters = dict(model.named_parameters())
        self._device = next(iter(self._parameters.values())).device
        self._optimizer: Any = optimizer
        self._parallel = parallel
        if deferred is None:
            fused = all(group.get("fused") for group in optimizer.param_groups)
            deferred = fused and self._device.type == "cuda"
        self._deferred = deferred
        self._unread: list[tuple[int, Sequence[Pairs], Tensor]] = []

    def judge(
        self, update: int, batches: Sequence[Pairs], losses: Iterable[tuple[int, Loss]]
    ) -> None:
        """Judge an update, whose step may be taken if nothing is raised.

        Raises:
            ShapeshiftError: if it is bad and nothing is deferred.
        """
        verdict = torch.zeros(len(batches) + 1, dtype=torch.int32, device=self._device)
        for number, loss in losses:
            verdict[number] = ~loss.smoothed.detach().isfinite()
        verdict[-1] = self._worst_gradient()
        self._parallel.all_reduce_max(verdict)
        self._unread.append((update, batches, verdict))
        if self._deferred:
            self._optimizer.found_inf = verdict.any().float()
        else:
            self.check()

    def check(self) -> None:
        """Read the verdicts since the last call, which waits for the device."""
        if not self._unread:
            return
        verdicts = torch.stack([verdict for *_, verdict in self._unread]).tolist()
        unread, self._unread = self._unread, []
        names = list(self._parameters)
        for (update, batches, _), (*in_loss, worst) in zip(unread, verdicts, strict=True):
            if worst or any(in_loss):
                chosen = [pairs for pairs, bad in zip(batches, in_loss, strict=True) if bad]
                parameter = names[len(names) - worst] if worst else None
                raise ShapeshiftError(
                    f"{_message(update, parameter, chosen or batches, any(in_loss))}; train in a"
                    " new folder with a lower learning rate, training.clip_norm or"
                    " training.precision=fp32"
                )

    def _worst_gradient(self) -> Tensor:
        """Return 0 if all gradients are finite, else how many parameters there are from the first
        one with a bad gradient on: the maximum over processes selects the first one of all."""
        grads, ranks = [], []
        for index, parameter in enumerate(self._parameters.values()):
            if parameter.grad is not None:
                grads.append(parameter.grad)
                ranks.append(len(self._parameters) - index)
        if not grads:
            return torch.zeros((), dtype=torch.int32, device=self._device)
        # The largest absolute value: a sum of squares could overflow where no gradient does.
        finite = torch.stack(torch._foreach_norm(grads, math.inf)).isfinite()
        numbers = torch.tensor(ranks, dtype=torch.int32).to(self._device, non_blocking=True)
        return torch.where(finite, 0, numbers).amax()


def _message(update: int, parameter: str | None, batches: Sequence[Pairs], in_loss: bool) -> str:
    pairs = sorted(int(pair) for batch in batches for pair in batch)
    named = ", ".join(map(str, pairs[:MOST_NAMED]))
    more = f" and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    where = f"in the batch of training pairs {named}{more} (counted from 0)"
    if not in_loss:
        return (
            f"the gradient of {parameter} in update {update} is not finite, though the loss is,"
            f" {where}"
        )
    gradient = f"; nor is the gradient of {parameter}" if parameter else ""
    return f"the loss of update {update} is not finite, {where}{gradient}"
