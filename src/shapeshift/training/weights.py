"""Weights as safetensors files, checked before they are used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from shapeshift.disk import replace_file, writing
from shapeshift.errors import ShapeshiftError, reason
from shapeshift.training.manifest import MODEL, STATE, read_file, read_manifest, read_verified

_METADATA = "shapeshift"
"""One key, whose value is JSON: safetensors writes several in an arbitrary order."""


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
    """Return the weights in a file, compared with the hash in the checkpoint's manifest, or with
    the hash that `average` wrote into the file.
    """
    if path.name == MODEL and (path.parent / STATE).exists():
        return decode(read_verified(path.parent, MODEL, read_manifest(path.parent)), path)
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights in a file and what `average` noted there, if it wrote the file."""
    if not path.exists():
        raise ShapeshiftError("no such file", path=path)
    content = read_file(path)
    tensors = decode(content, path)
    # safetensors returns metadata for files only, not for bytes; the header is valid by now.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    try:
        note = json.loads((header.get("__metadata__") or {}).get(_METADATA, "{}"))
        intact = note == {} or note["sha256"] == _hash(tensors)
    except (ValueError, LookupError, TypeError):
        intact = False
    if not intact:
        raise ShapeshiftError(
            "differs from what was saved (SHA-256); run the training command again",
            path=path,
        )
    return tensors, note


def _hash(tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256(save(tensors)).hexdigest()


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a model's parameters from a file."""
    assign(model, read_weights(path), path)


@torch.no_grad()
def assign(model: nn.Module, loaded: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a model.

    Args:
        model: unchanged if an error is raised.
        loaded: weights by the names of the model's parameters.
        path: the file that they were read from.

    Raises:
        ShapeshiftError: if names, shapes or types are not those of the model's parameters.
    """
    own = dict(model.named_parameters())
    _check_same_model(loaded, own, path)
    for name, parameter in own.items():
        parameter.copy_(loaded[name])


def _check_same_model(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path
) -> None:
    missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    if missing or unknown:
        raise ShapeshiftError(
            f"holds another model: {len(missing)} parameters are missing and {len(unknown)} are"
            f" unknown, such as {min(missing or unknown)!r}",
            path=path,
        )
    for name, parameter in expected.items():
        tensor = tensors[name]
        if (tensor.shape, tensor.dtype) != (parameter.shape, parameter.dtype):
            raise ShapeshiftError(
                f"holds another model: {name} has shape {tuple(tensor.shape)} of {tensor.dtype},"
                f" expected {tuple(parameter.shape)} of {parameter.dtype}",
                path=path,
            )


def average(paths: Sequence[Path], target: Path) -> None:
    """Write the mean of several checkpoints' weights to `target`, atomically. The file notes their
    names and its own hash.

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
    note = {"average_of": _names(paths), "sha256": _hash(mean)}
    content = save(mean, {_METADATA: json.dumps(note)})
    remedy = f"it needs {len(content):,} bytes; fix that and run the same command again"
    with writing(target, remedy):
        replace_file(target, content)


def is_average_of(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a file exists, is intact, and is the average of exactly these `paths`."""
    try:
        note = _read(path)[1]
    except ShapeshiftError:
        return False
    return note.get("average_of") == _names(paths)


def _names(paths: Sequence[Path]) -> list[str]:
    return [path.parent.name for path in paths]
