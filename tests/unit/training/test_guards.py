"""What is not finite is found, named, and never reaches the weights."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import Loss
from shapeshift.training.config import OptimizerConfig
from shapeshift.training.guards import Guard
from shapeshift.training.optim import build_optimizer
from shapeshift.training.parallel import Parallel

from .models import same, state

BATCHES = [np.array([7, 3]), np.array([5, 1])]


class Bench:
    """Two linear layers whose gradients a test writes itself."""

    def __init__(self, deferred=False, optimizer="adam"):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        self.optimizer = build_optimizer(OptimizerConfig(name=optimizer), self.model.parameters())
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1
        self.guard = Guard(self.model, self.optimizer, Parallel())
        self.guard._deferred = deferred  # as on a GPU

    def update(self, number, *, losses=(1.0, 2.0), spoil=None, value=math.nan):
        for name, p in self.model.named_parameters():
            p.grad = torch.full_like(p, 0.5 + number)
            if name == spoil:
                p.grad.view(-1)[-1] = value
        each = [Loss(torch.tensor(loss), torch.tensor(loss), 1) for loss in losses]
        self.guard.judge(number, BATCHES, each)
        self.optimizer.step()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_is_found(value):
    bench = Bench()
    bench.update(1, spoil="0.weight", value=3e38)  # whose square overflows
    before = state(bench.model, bench.optimizer)
    message = r"^the gradient of update 2 is not finite; its training pairs.* are 1, 3, 5, 7;"
    with pytest.raises(ShapeshiftError, match=message):
        bench.update(2, spoil="1.weight", value=value)
    assert same(state(bench.model, bench.optimizer), before)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_on_the_device_a_bad_update_moves_nothing_and_is_reported_later(optimizer):
    bench = Bench(deferred=True, optimizer=optimizer)
    bench.update(1)
    before = state(bench.model, bench.optimizer)
    bench.update(2, losses=(math.nan, 1.0))
    assert same(state(bench.model, bench.optimizer), before)
    bench.update(3)
    with pytest.raises(ShapeshiftError, match="the loss of update 2 is not finite"):
        bench.guard.check()
