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

from shapeshift.disk import Disk, free_bytes, replace_file
from shapeshift.errors import ShapeshiftError
from shapeshift.training.manifest import MODEL, STATE, read_manifest, read_verified

_METADATA = "shapeshift"
"""One key, whose value is JSON: safetensors writes several in an arbitrary order."""


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters by name, on the CPU; a shared one is listed once."""
    return {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}


def decode(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file that was read from `path`.

    Raises:
        ShapeshiftError: if the content is not a safetensors file.
    """
    try:
        return load(content)
    except Exception as error:  # whatever the library raises, the file is at fault
        reason = " ".join(str(error).split())[:200]
        raise ShapeshiftError(f"not a readable safetensors file ({reason})", path=path) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file, compared with the hash in the checkpoint's manifest, or with
    the hash that `average` wrote into the file.

    Raises:
        ShapeshiftError: if the file is missing or damaged.
    """
    if path.name == MODEL and (path.parent / STATE).exists():
        return decode(read_verified(path.parent, MODEL, read_manifest(path.parent)), path)
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights in a file and what `average` noted there, if it wrote the file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ShapeshiftError("no such file", path=path) from None
    except OSError as error:
        raise ShapeshiftError(f"cannot be read ({error.strerror})", path=path) from error
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
    """Load a model's parameters from a file.

    Raises:
        ShapeshiftError: if the file is missing or damaged, or holds another model's parameters.
    """
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
    missing, foreign = own.keys() - loaded.keys(), loaded.keys() - own.keys()
    if missing or foreign:
        raise ShapeshiftError(
            f"holds another model: {len(missing)} parameters are missing and {len(foreign)} are"
            f" unknown, such as {min(missing or foreign)!r}",
            path=path,
        )
    for name, parameter in own.items():
        found = loaded[name]
        if (found.shape, found.dtype) != (parameter.shape, parameter.dtype):
            raise ShapeshiftError(
                f"holds another model: {name} has shape {tuple(found.shape)} of {found.dtype},"
                f" expected {tuple(parameter.shape)} of {parameter.dtype}",
                path=path,
            )
    for name, parameter in own.items():
        parameter.copy_(loaded[name])


def average(paths: Sequence[Path], target: Path, disk: Disk | None = None) -> None:
    """Write the mean of several checkpoints' weights to `target`, atomically. The file notes their
    names and its own hash.

    Raises:
        ShapeshiftError: if there is nothing to average, a file cannot be read or written, or the
            weights are not all of one model.
    """
    if not paths:
        raise ShapeshiftError("there is no checkpoint to average yet")
    total = {name: tensor.double() for name, tensor in read_weights(paths[0]).items()}
    for path in paths[1:]:
        tensors = read_weights(path)
        if _shapes(tensors) != _shapes(total):
            raise ShapeshiftError(f"holds another model than {paths[0]}", path=path)
        for name, tensor in tensors.items():
            total[name] += tensor
    mean = {name: (tensor / len(paths)).float() for name, tensor in total.items()}
    note = {"average_of": _names(paths), "sha256": _hash(mean)}
    content = save(mean, {_METADATA: json.dumps(note)})
    try:
        replace_file(disk or Disk(), target, [content])
    except OSError as error:
        raise ShapeshiftError(
            f"cannot be written ({error.strerror}); it needs {len(content):,} bytes and"
            f" {free_bytes(target.parent):,} are free; fix that and run the same command again",
            path=target,
        ) from error


def is_average_of(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a file exists, is intact, and is the average of exactly these `paths`."""
    try:
        note = _read(path)[1]
    except ShapeshiftError:
        return False
    return note.get("average_of") == _names(paths)


def _names(paths: Sequence[Path]) -> list[str]:
    return [path.parent.name for path in paths]


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
