"""Starts a run from the final model of another one, which may have another position scheme."""

from __future__ import annotations

from pathlib import Path

import torch

from shapeshift.config import Config
from shapeshift.data.subwords import Subwords
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.run import AVERAGE, Run
from shapeshift.model import Transformer

_MAY_DIFFER = {"size", "dropout", "attention_dropout", "activation_dropout"}


@torch.no_grad()
def start_from(directory: Path, model: Transformer, config: Config, subwords: Subwords) -> str:
    """Copy the final weights of a run into a model, and return a line that says which.

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
    old, new = (dict(x.named_parameters()) for x in (run.model(), model))
    # Apart from positions, both models have the same weights: their shape is one.
    kept = {name for name in new.keys() & old.keys() if new[name].shape == old[name].shape}
    for name in kept:
        new[name].copy_(old[name])
    line = f"starts from {directory}: {sum(new[name].numel() for name in kept):,} parameters"
    for what, names in (("new", new.keys() - kept), ("left out", old.keys() - kept)):
        if names:
            line += f"; {what}: {', '.join(sorted(names))}"
    return line
