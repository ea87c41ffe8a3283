"""Schedules against numbers worked out by hand, and the settings of optimisers."""

import math

import pytest
import torch
from torch import nn

from shapeshift.training.config import Cosine, InverseSquareRoot, Noam, OptimizerConfig
from shapeshift.training.optim import build_optimizer, learning_rate

PEAK = 2 / math.sqrt(512 * 8000)
NOAM = Noam(factor=2.0, warmup_updates=8000)
INVERSE = InverseSquareRoot(peak=0.002, warmup_updates=600)
COSINE = Cosine(peak=1e-3, warmup_updates=100, final=1e-4)


@pytest.mark.parametrize(
    ("schedule", "update", "expected"),
    [
        (NOAM, 8000, PEAK),
        (NOAM, 32_000, PEAK / 2),
        (INVERSE, 1, 0.002 / 600),
        (INVERSE, 5400, 0.002 / 3),
        (COSINE, 1, 1e-5),
        (COSINE, 350, 1e-4 + 9e-4 * (2 + math.sqrt(2)) / 4),  # an eighth of the circle
        (COSINE, 1100, 1e-4),
    ],
)
def test_rates_are_those_of_the_formulas(schedule, update, expected):
    rate = learning_rate(schedule, update, dim=512, max_updates=1100)
    assert rate == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("radam", torch.optim.RAdam)],
)
def test_optimisers_take_their_settings_and_wait_for_a_learning_rate(name, kind):
    config = OptimizerConfig(name=name, betas=(0.8, 0.95), eps=0.05, weight_decay=0.3)
    parameter = nn.Parameter(torch.ones(3))
    optimizer = build_optimizer(config, [parameter])
    assert type(optimizer).__bases__ == (kind,)
    (group,) = optimizer.param_groups
    found = (group["betas"], group["eps"], group["weight_decay"])
    assert found == (config.betas, config.eps, config.weight_decay)
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(parameter, torch.ones(3))
