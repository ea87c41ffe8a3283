"""Checkpoints: safetensors and JSON in a folder that appears complete or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from shapeshift.errors import ShapeshiftError

_NAME = re.compile(r"update-(\d{8})")
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass
class Progress:
    """How far a run is. With the seed it determines all that follows.

    Attributes:
        update: updates done.
        epoch: the epoch that the next batch is from, counted from 0.
        batch: batches of that epoch already used.
        best_update, best_loss: the checkpoint with the lowest validation loss so far.
        elapsed_s: time spent training, over all restarts.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    best_update: int | None = None
    best_loss: float | None = None
    elapsed_s: float = 0.0


class Checkpoints:
    """The checkpoints of one run, `update-00005000/` and so on, oldest first.

    Args:
        directory: the folder that holds them; made with the first one.
        keep: how many newest ones stay. The best one always stays.
    """

    def __init__(self, directory: Path, keep: int):
        self.directory = directory
        self.keep = keep

    def updates(self) -> list[int]:
        """Return the updates at which there is a checkpoint, oldest first."""
        if not self.directory.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, update: int) -> Path:
        """Return the folder of the checkpoint at `update`."""
        return self.directory / f"update-{update:08d}"

    def save(self, model: nn.Module, optimizer: Optimizer, progress: Progress) -> Path:
        """Write a checkpoint, make it durable, then delete those that need not be kept.

        Every file is flushed to the disk before the folder takes its name, and the name is flushed
        before anything is deleted: whenever the machine stops, a complete checkpoint is there.

        Raises:
            ShapeshiftError: if a weight is not finite, for nothing could continue from there.
        """
        tensors = weights(model)
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise ShapeshiftError(
                    f"{name} is not finite after update {progress.update}, so no checkpoint was"
                    " written; train with a lower learning rate or with training.clip_norm",
                    path=self.directory,
                )
        final = self.path(progress.update)
        self.directory.mkdir(parents=True, exist_ok=True)
        for stray in self.directory.glob(".partial-*"):
            shutil.rmtree(stray)
        partial = self.directory / f".partial-{final.name}"
        partial.mkdir()
        save_file(tensors, partial / MODEL)
        moments, numbers = _flatten(optimizer)
        save_file(moments, partial / OPTIMIZER)
        files = {
            name: {"bytes": (partial / name).stat().st_size, "sha256": _sha256(partial / name)}
            for name in (MODEL, OPTIMIZER)
        }
        state: dict[str, Any] = {"progress": asdict(progress), "optimizer": numbers, "files": files}
        state["sha256"] = _sha256_of(state)
        (partial / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        for name in (MODEL, OPTIMIZER, STATE):
            _sync(partial / name)
        _sync(partial)
        if final.exists():
            self._remove(final)
        partial.rename(final)
        _sync(self.directory)
        for update in self.updates()[: -self.keep]:
            if update != progress.best_update:
                self._remove(self.path(update))
        return final

    def restore(self, update: int, model: nn.Module, optimizer: Optimizer) -> Progress:
        """Load the checkpoint at `update` into a model and an optimiser of the same shapes.

        Raises:
            ShapeshiftError: if a file is missing, damaged or of another model.
        """
        path = self.path(update)
        state = self._state(path)
        for name, expected in state["files"].items():
            _verify(path / name, expected)
        load_weights(model, path / MODEL)
        _unflatten(optimizer, _read(path / OPTIMIZER), state["optimizer"])
        return Progress(**state["progress"])

    def progress(self, update: int) -> Progress:
        """Return how far the run was at a checkpoint."""
        return Progress(**self._state(self.path(update))["progress"])

    def _remove(self, path: Path) -> None:
        # It loses its name first: a deletion that is cut short leaves no half of a checkpoint.
        doomed = path.with_name(f".partial-removed-{path.name}")
        path.rename(doomed)
        shutil.rmtree(doomed)

    def _state(self, path: Path) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
            if state.pop("sha256") != _sha256_of(state):
                raise ValueError(f"{STATE} differs from what was saved")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ShapeshiftError(
                "not a readable checkpoint; remove it and run again to continue from the one"
                f" before ({error})",
                path=path,
            ) from error
        return state


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters by name; one that serves twice is there once."""
    return {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}


def load_weights(model: nn.Module, path: Path) -> None:
    """Load parameters that `weights` named.

    Raises:
        ShapeshiftError: if the file is missing or damaged, or holds another model's parameters.
    """
    loaded = _read(path)
    own = dict(model.named_parameters())
    missing, foreign = own.keys() - loaded.keys(), loaded.keys() - own.keys()
    if missing or foreign:
        example = min(missing or foreign)
        raise ShapeshiftError(
            f"holds another model: {len(missing)} parameters are missing and {len(foreign)} are"
            f" unknown, {example!r} for one",
            path=path,
        )
    for name, parameter in own.items():
        if loaded[name].shape != parameter.shape:
            raise ShapeshiftError(
                f"holds another model: {name} has shape {tuple(loaded[name].shape)}, expected"
                f" {tuple(parameter.shape)}",
                path=path,
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(loaded[name])


def average(paths: Sequence[Path], target: Path) -> None:
    """Write the mean of several files of weights to `target`, atomically.

    Raises:
        ShapeshiftError: if there is nothing to average, a file cannot be read, or they are not
            all of one model.
    """
    if not paths:
        raise ShapeshiftError("there is no checkpoint to average yet")
    total = {name: tensor.double() for name, tensor in _read(paths[0]).items()}
    for path in paths[1:]:
        tensors = _read(path)
        if _shapes(tensors) != _shapes(total):
            raise ShapeshiftError(f"holds another model than {paths[0]}", path=path)
        for name, tensor in tensors.items():
            total[name] += tensor
    mean = {name: (tensor / len(paths)).float() for name, tensor in total.items()}
    partial = target.with_name(f".partial-{target.name}")
    of = ", ".join(path.parent.name for path in paths)
    save_file(mean, partial, metadata={"average_of": of})
    _sync(partial)
    partial.replace(target)
    _sync(target.parent)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _flatten(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, values in optimizer.state_dict()["state"].items():
        for key, value in values.items():
            name = f"{index}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value.cpu().contiguous()
            else:
                numbers[name] = value
    return tensors, numbers


def _unflatten(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]
) -> None:
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise ShapeshiftError("no such file", path=path) from None
    except (OSError, SafetensorError) as error:
        raise ShapeshiftError(f"not a readable safetensors file ({error})", path=path) from error


def _verify(path: Path, expected: Mapping[str, Any]) -> None:
    try:
        same = path.stat().st_size == expected["bytes"] and _sha256(path) == expected["sha256"]
    except OSError as error:
        raise ShapeshiftError(f"cannot be read ({error.strerror})", path=path) from error
    if not same:
        raise ShapeshiftError(
            "differs from what was saved (size or SHA-256); remove this checkpoint and run again"
            " to continue from the one before",
            path=path,
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
