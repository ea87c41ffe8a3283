"""Prevents steps of the optimiser on a loss or gradient that is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import Loss
from shapeshift.training.parallel import MAX, Parallel

Pairs = NDArray[np.int64]
"""The numbers of the pairs of a batch."""

MOST_NAMED = 20  # pairs of an update in an error


class Guard:
    """Checks each update between its backward pass and its step. On a GPU that would make the host
    wait: there the verdict is given to the fused optimiser as `found_inf`, which then leaves
    weights and moments as they are, and `check` reads it, and raises, before anything is logged or
    saved. RAdam is not fused, so with it the host waits. All processes come to the same verdict.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, parallel: Parallel):
        self._parameters = [*model.parameters()]
        self._optimizer: Any = optimizer
        self._parallel = parallel
        fused = all(group.get("fused") for group in optimizer.param_groups)
        self._deferred = fused and self._parameters[0].device.type == "cuda"
        self._unread: list[tuple[int, Sequence[Pairs], Tensor]] = []

    def judge(self, update: int, batches: Sequence[Pairs], losses: Sequence[Loss]) -> None:
        """Check an update, given the batches of all processes and the losses of this one. Raise a
        `ShapeshiftError` if it is bad and nothing is deferred; else its step may be taken."""
        grads = [p.grad for p in self._parameters if p.grad is not None]
        total = torch.stack([loss.smoothed.detach() for loss in losses]).sum()
        found = torch.zeros((), device=total.device)
        # What GradScaler uses: it looks at each number once, and multiplies by 1.
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones_like(found))
        bad = torch.stack([~total.isfinite(), found > 0])
        verdict = self._parallel.all_reduce(bad.int(), MAX)
        self._unread.append((update, batches, verdict))
        if self._deferred:
            self._optimizer.found_inf = verdict.any().float()
        else:
            self.check()

    def check(self) -> None:
        """Read the verdicts since the last call, waiting for the device."""
        if not self._unread:
            return
        verdicts = torch.stack([verdict for *_, verdict in self._unread]).tolist()
        unread, self._unread = self._unread, []
        for (update, batches, _), (in_loss, in_gradient) in zip(unread, verdicts, strict=True):
            if in_loss or in_gradient:
                pairs = sorted(int(pair) for batch in batches for pair in batch)
                named = ", ".join(map(str, pairs[:MOST_NAMED]))
                more = ", …" * (len(pairs) > MOST_NAMED)
                raise ShapeshiftError(
                    f"the {'loss' if in_loss else 'gradient'} of update {update} is not finite; its"
                    f" training pairs, counted from 0, are {named}{more}; train in a new folder"
                    " with a lower learning rate, training.clip_norm or training.precision=fp32"
                )
