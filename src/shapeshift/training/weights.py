"""Weights in safetensors files, which are checked before use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError, reason
from shapeshift._system.files import open_regular
from shapeshift._system.hashes import store, verify
from shapeshift.training.manifest import MODEL, read_file, read_manifest, read_verified


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters by name, on the CPU; a shared one is listed once."""
    return {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}


def decode(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file that was read from `path`."""
    try:
        return load(content)
    except Exception as error:  # whatever the library raises, the file is at fault
        message = f"not a readable safetensors file ({reason(error)})"
        raise ShapeshiftError(message, path=path) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file, compared with the hash in the checkpoint's manifest, or in the
    `SHA256SUMS` of another folder."""
    if path.name == MODEL:
        return decode(read_verified(path.parent, MODEL, read_manifest(path.parent)), path)
    verify(path.parent, path.name, remedy="run the training command again")
    return decode(read_file(path), path)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a model's parameters from a file."""
    assign(model, read_weights(path), path)


@torch.no_grad()
def assign(model: nn.Module, loaded: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights, which were read from `path`, into a model.

    Raises:
        ShapeshiftError: if names, shapes or types are not those of the model's parameters. The
            model is unchanged then.
    """
    own = dict(model.named_parameters())
    _check_same_model(loaded, own, path)
    for name, parameter in own.items():
        parameter.copy_(loaded[name])


def _check_same_model(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path
) -> None:
    found, own = (
        {name: f"{x.dtype} {tuple(x.shape)}" for name, x in each.items()}
        for each in (tensors, expected)
    )
    differing = sorted({name for name, _ in found.items() ^ own.items()})
    if differing:
        name = differing[0]
        raise ShapeshiftError(
            f"holds another model: {len(differing)} parameters differ, such as {name!r}, which is"
            f" {found.get(name, 'missing')}, expected {own.get(name, 'none')}",
            path=path,
        )


def average(paths: Sequence[Path], target: Path) -> None:
    """Write the mean of several checkpoints' weights to `target`, atomically, with their names, and
    its hash to `SHA256SUMS`.

    Raises:
        ShapeshiftError: if there is nothing to average, a file cannot be read or written, or the
            weights are not all of one model.
    """
    if not paths:
        raise ShapeshiftError("there is no checkpoint to average yet")
    first = read_weights(paths[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        tensors = read_weights(path)
        _check_same_model(tensors, first, path)
        for name, tensor in tensors.items():
            total[name] += tensor
    mean = {name: (tensor / len(paths)).float() for name, tensor in total.items()}
    store(target.parent, {target.name: save(mean, _note(paths))})


def is_average_of(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a file exists, is intact, and is the average of exactly these `paths`."""
    try:
        verify(path.parent, path.name, remedy="")
        open_regular(path).close()
        with safe_open(path, "pt") as file:
            return bool(file.metadata() == _note(paths))
    except (ShapeshiftError, OSError, SafetensorError):
        return False


def _note(paths: Sequence[Path]) -> dict[str, str]:
    return {"average_of": " ".join(path.parent.name for path in paths)}
