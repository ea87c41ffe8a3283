"""Loss and speed between two lines of the log."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from shapeshift.model import Loss
from shapeshift.training.parallel import Parallel


class RunningMetrics:
    """Sums of the losses since it was made, and the time since then."""

    def __init__(self, device: torch.device):
        self._sums = torch.zeros(3, device=device, dtype=torch.float64)
        self._began = time.perf_counter()

    def add(self, losses: list[tuple[int, Loss]], bad: Tensor) -> None:
        """Add the losses of an update, unless it is bad, without waiting for the device."""
        for _, loss in losses:
            num_tokens = torch.full_like(loss.nll, loss.num_tokens)
            values = torch.stack([loss.smoothed.detach(), loss.nll, num_tokens])
            self._sums += torch.where(bad, 0, values)

    def read(self, parallel: Parallel) -> dict[str, float]:
        """Return `loss` and `nll` a token and `tokens_per_s`, of all processes.

        Empty if every update was bad.
        """
        loss, nll, num_tokens = parallel.all_reduce_sum(self._sums).tolist()
        if not num_tokens:
            return {}
        speed = num_tokens / (time.perf_counter() - self._began)
        return {
            "loss": loss / num_tokens,
            "nll": nll / num_tokens,
            "tokens_per_s": round(speed, 1),
        }
