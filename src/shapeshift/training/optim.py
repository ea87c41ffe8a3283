"""Optimisers and learning-rate schedules."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from shapeshift.training.config import Cosine, InverseSquareRoot, Noam, OptimizerConfig


def build_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimiser, with a learning rate of 0 until the schedule sets one. On a CPU its
    moments are allocated now; in the first step, they would fragment the memory of freed
    activations."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}
    settings: dict[str, Any] = config.model_dump(exclude={"name"}) | {"lr": 0.0}
    if config.name != "radam":  # Liu et al. 2020, which has no fused step
        settings["fused"] = True
    optimizer = _without_compiler(kinds[config.name])(parameters, **settings)
    for parameter in optimizer.param_groups[0]["params"]:
        if parameter.device.type == "cpu":
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": torch.tensor(0.0), **moments}
    return optimizer


def _without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """Return the optimiser class without the wrappers that import PyTorch's compiler, which an
    uncompiled optimiser does not need: this saves 1.4 s and 70 MB (dev/log.md)."""
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "step": step})


def learning_rate(
    schedule: Noam | InverseSquareRoot | Cosine, update: int, *, dim: int, max_updates: int
) -> float:
    """Return the learning rate of an update, counted from 1; the formulas stand with the schedules'
    settings. Noam scales by `dim` (D), and the cosine ends at `max_updates`."""
    warmup = schedule.warmup_updates
    match schedule:
        case Noam():
            return float(schedule.factor * dim**-0.5 * min(update**-0.5, update * warmup**-1.5))
        case InverseSquareRoot():
            return float(schedule.peak * min(update / warmup, (warmup / update) ** 0.5))
        case Cosine():
            if update <= warmup:
                return schedule.peak * update / warmup
            done = min(1.0, (update - warmup) / max(1, max_updates - warmup))
            half_cosine = 0.5 + 0.5 * math.cos(math.pi * done)
            return schedule.final + (schedule.peak - schedule.final) * half_cosine
