"""Schedules against numbers worked out by hand, optimisers against the papers' algorithms."""

import math
from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from shapeshift.training.config import (
    Cosine,
    InverseSquareRoot,
    Noam,
    OptimizerConfig,
    TrainingConfig,
)
from shapeshift.training.optim import build_optimizer, learning_rate

PEAK = 2 / math.sqrt(512 * 8000)
NOAM = Noam(factor=2.0, warmup_updates=8000)
INVERSE = InverseSquareRoot(peak=0.002, warmup_updates=600)
COSINE = Cosine(peak=1e-3, warmup_updates=100, final=1e-4)


@pytest.mark.parametrize(
    ("schedule", "update", "expected"),
    [
        (NOAM, 1, PEAK / 8000),
        (NOAM, 8000, PEAK),
        (NOAM, 32_000, PEAK / 2),
        (NOAM, 200_000, PEAK / 5),
        (INVERSE, 1, 0.002 / 600),
        (INVERSE, 600, 0.002),
        (INVERSE, 5400, 0.002 / 3),
        (COSINE, 1, 1e-5),
        (COSINE, 100, 1e-3),
        (COSINE, 350, 1e-4 + 9e-4 * (2 + math.sqrt(2)) / 4),  # an eighth of the circle
        (COSINE, 600, 5.5e-4),
        (COSINE, 1100, 1e-4),
        (COSINE, 2000, 1e-4),
    ],
)
def test_rates_are_those_of_the_formulas(schedule, update, expected):
    rate = learning_rate(schedule, update, dim=512, max_updates=1100)
    assert rate == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("schedule", "peak"),
    [
        (Noam(factor=1.0, warmup_updates=50), 1 / math.sqrt(50 * 16)),
        (InverseSquareRoot(peak=0.3, warmup_updates=50), 0.3),
        (Cosine(peak=0.3, warmup_updates=50), 0.3),
    ],
)
def test_a_schedule_rises_to_its_peak_and_falls_without_a_jump(schedule, peak):
    rates = [learning_rate(schedule, u, dim=16, max_updates=500) for u in range(1, 501)]
    assert max(rates) == rates[49] == pytest.approx(peak, rel=1e-12)
    assert all(a < b for a, b in pairwise(rates[:50]))
    assert all(a > b for a, b in pairwise(rates[49:]))
    steps = [abs(a - b) for a, b in pairwise(rates)]
    assert max(steps) <= 1.001 * peak / 50


def adam(config, start, gradients, rate):
    """Adam (Kingma and Ba 2015, algorithm 1), with decay as L2 or decoupled."""
    (beta1, beta2), w, m, v = config.betas, start, 0.0, 0.0
    for t, g in enumerate(gradients, start=1):
        if config.name == "adamw":
            w -= rate * config.weight_decay * w
        else:
            g += config.weight_decay * w
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w -= rate * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + config.eps)
    return w


def radam(config, start, gradients, rate):
    """RAdam (Liu et al. 2020, algorithm 2), with L2 decay; eps is not in the paper."""
    (beta1, beta2), w, m, v = config.betas, start, 0.0, 0.0
    longest = 2 / (1 - beta2) - 1
    for t, g in enumerate(gradients, start=1):
        g += config.weight_decay * w
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        mean = m / (1 - beta1**t)
        length = longest - 2 * t * beta2**t / (1 - beta2**t)
        if length <= 5:
            w -= rate * mean
            continue
        spread = math.sqrt(1 - beta2**t) / (math.sqrt(v) + config.eps)
        above, below = (length - 4) * (length - 2), (longest - 4) * (longest - 2)
        w -= rate * math.sqrt(above * longest / (below * length)) * mean * spread
    return w


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize(("name", "reference"), [("adam", adam), ("adamw", adam), ("radam", radam)])
def test_optimisers_take_their_settings(name, reference, weight_decay):
    config = OptimizerConfig(name=name, betas=(0.8, 0.95), eps=0.05, weight_decay=weight_decay)
    parameter = nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    optimizer = build_optimizer(config, [parameter])
    gradients = [0.7, -0.2, 0.4, 1.1, 0.3, -0.6, 0.2, 0.9, 0.5, -0.1]
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    assert parameter.item() == pytest.approx(reference(config, 1.5, gradients, 0.1), rel=1e-9)


@pytest.mark.parametrize("name", ["adam", "adamw", "radam"])
def test_without_a_schedule_nothing_moves(name):
    parameter = nn.Parameter(torch.ones(3))
    optimizer = build_optimizer(OptimizerConfig(name=name, weight_decay=0.1), [parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(parameter, torch.ones(3))


def test_the_defaults_are_the_papers():
    config = TrainingConfig()
    assert config.schedule == NOAM
    assert config.optimizer == OptimizerConfig(
        name="adam", betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0
    )
    assert (config.label_smoothing, config.clip_norm, config.max_updates) == (0.1, None, 200_000)
    assert (config.checkpoint_every, config.average_checkpoints) == (5000, 10)


def test_more_cannot_be_averaged_than_is_kept():
    with pytest.raises(ValidationError, match=r"3 needs training.keep_checkpoints=3 or more"):
        TrainingConfig(average_checkpoints=3, keep_checkpoints=2)
