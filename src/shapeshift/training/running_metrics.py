"""Loss and speed between two lines of the log."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from shapeshift.model import Loss
from shapeshift.training.parallel import Parallel


class RunningMetrics:
    """Sums since the last line of the log, and the time training took for them."""

    def __init__(self, device: torch.device):
        self._loss = torch.zeros((), device=device, dtype=torch.float64)
        self._nll = torch.zeros_like(self._loss)
        self._num_tokens = torch.zeros_like(self._loss)
        self._elapsed_s = 0.0
        self._since = time.perf_counter()

    def add(self, losses: list[Loss], bad: Tensor) -> None:
        """Add the losses of an update, unless it is bad, without waiting for the device."""
        for loss in losses:
            self._loss += torch.where(bad, 0, loss.smoothed.detach())
            self._nll += torch.where(bad, 0, loss.nll)
            self._num_tokens += torch.where(bad, 0, loss.num_tokens)

    def pause(self) -> None:
        """Stop the clock: what follows is not training."""
        self._elapsed_s += time.perf_counter() - self._since

    def go_on(self) -> None:
        """Start the clock again."""
        self._since = time.perf_counter()

    def read(self, parallel: Parallel) -> dict[str, float]:
        """Stop the clock; return `loss` and `nll` a token and `tokens_per_s`, of all processes.

        Empty if every update was bad.
        """
        sums = torch.stack([self._loss, self._nll, self._num_tokens])
        loss, nll, num_tokens = parallel.all_reduce_sum(sums).tolist()
        self.pause()
        if not num_tokens:
            return {}
        speed = num_tokens / self._elapsed_s
        return {"loss": loss / num_tokens, "nll": nll / num_tokens, "tokens_per_s": speed}
