"""Starts a run from the final model of another one, which may have another position scheme."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from shapeshift.config import Config
from shapeshift.data.subwords import Subwords
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.final import AVERAGE
from shapeshift.lab.run import Run
from shapeshift.model import Transformer
from shapeshift.positions import Representation

_MAY_DIFFER = {"size", "dropout", "attention_dropout", "activation_dropout"}


@dataclass(frozen=True)
class Started:
    """What a model has from another run.

    Attributes:
        directory: of that run.
        num_kept: parameters that were copied.
        new: names of the weights that start at random.
        left_out: names of that run's weights which this model has no use for.
    """

    directory: Path
    num_kept: int
    new: tuple[str, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        """Return a line for people, with the first names of each kind."""
        line = f"starts from {self.directory}: {self.num_kept:,} parameters"
        for what, names in (("new", self.new), ("left out", self.left_out)):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                line += f"; {what}: {', '.join(names[:3])}{more}"
        return line


@torch.no_grad()
def start_from(directory: Path, model: Transformer, config: Config, subwords: Subwords) -> Started:
    """Copy the final weights of a run into a model.

    Weights of position representations are copied where both models have them in one shape; those
    that this model alone has stay as they are. All other weights are copied.

    Raises:
        ShapeshiftError: there is no such run, it is not finished, or its model has another shape or
            other subwords.
    """
    run = Run(directory)
    if not (directory / AVERAGE).exists():
        raise ShapeshiftError(
            "is not trained to its end, so that nothing can start from it; run its training command"
            " again first",
            path=directory,
        )
    theirs, ours = (x.model.model_dump(exclude=_MAY_DIFFER) for x in (run.config, config))
    other = [f"model.{name}={theirs[name]}" for name in ours if ours[name] != theirs[name]]
    if other:
        raise ShapeshiftError(
            f"has a model of another shape; set {' '.join(other).lower()} to start from it",
            path=directory,
        )
    if run.subwords().fingerprint != subwords.fingerprint:
        raise ShapeshiftError(
            f"has other subword models than these data; set data.subwords.models={directory}",
            path=directory,
        )
    source = run.model()
    old, new = dict(source.named_parameters()), dict(model.named_parameters())
    free = _position_parameters(source) | _position_parameters(model)
    kept = {
        name
        for name in new.keys() & old.keys()
        if name not in free or new[name].shape == old[name].shape
    }
    for name in kept:
        new[name].copy_(old[name])
    return Started(
        directory,
        sum(new[name].numel() for name in kept),
        tuple(sorted(new.keys() - kept)),
        tuple(sorted(old.keys() - kept)),
    )


def _position_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of position representations."""
    own = {
        parameter
        for module in model.modules()
        if isinstance(module, Representation)
        for parameter in module.parameters()
    }
    return {name for name, parameter in model.named_parameters() if parameter in own}
