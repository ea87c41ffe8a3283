"""Checkpoints: safetensors and JSON in a folder that is written atomically."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from shapeshift._system import files
from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.manifest import (
    MODEL,
    OPTIMIZER,
    STATE,
    DamagedError,
    Manifest,
    Name,
    Progress,
    read_manifest,
    read_verified,
)
from shapeshift.training.weights import assign, decode, weights

_NAME = re.compile(r"update-(\d{8,})")


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which a run continues.

    Attributes:
        progress: how far the run was.
        path: its folder.
        skipped: a sentence for each newer checkpoint that is damaged, the newest first.
    """

    progress: Progress
    path: Path
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        return f"going on after update {self.progress.update}, from {self.path}"


class Checkpoints:
    """The checkpoints of one run: folders `update-00005000` and so on.

    Args:
        directory: the folder that holds them; it is made with the first one.
        keep: how many of the newest stay. The best one always stays.
        every: updates between regular checkpoints. Others, saved at a stop or before a validation,
            are deleted when the next one is saved, unless they are the best: they must not take
            the place of one that is averaged.
    """

    def __init__(self, directory: Path, keep: int, *, every: int = 1):
        self.directory, self.keep, self._every = directory, keep, every

    def updates(self) -> list[int]:
        """Return the updates of all checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, update: int) -> Path:
        """Return the folder of the checkpoint at `update`."""
        return self.directory / f"update-{update:08d}"

    def save(self, model: nn.Module, optimizer: Optimizer, progress: Progress) -> Path:
        """Write a checkpoint, flush it to the disk, then delete obsolete ones.

        Every file is flushed before the folder takes its name, and the name is flushed before
        anything is deleted: whenever the machine stops, a complete checkpoint is there.

        Raises:
            ShapeshiftError: if a weight is not finite, since training could not continue from it;
                if the disk is full or fails. Earlier checkpoints are then as they were.
        """
        contents: dict[Name, dict[str, Tensor]]
        contents = {MODEL: weights(model), OPTIMIZER: _flatten(optimizer)}
        for name, tensor in contents[MODEL].items():
            if not tensor.isfinite().all():
                raise ShapeshiftError(
                    f"{name} is not finite after update {progress.update}, so no checkpoint was"
                    " written; train in a new folder with a lower learning rate or with"
                    " training.clip_norm",
                    path=self.directory,
                )
        path = self.path(progress.update)
        needed = sum(x.nbytes for tensors in contents.values() for x in tensors.values())
        remedy = (
            f"it needs {needed:,} bytes and {files.free_bytes(self.directory):,} are free; earlier"
            " checkpoints are untouched: fix that and run the same command again"
        )
        with files.writing(path, remedy):
            try:
                self._tidy()
                partial = path.with_name(files.PARTIAL + path.name)
                files.make_directory(partial)
                hashes = {
                    name: files.write_file(partial / name, [save(tensors)])
                    for name, tensors in contents.items()
                }
                manifest = Manifest(progress=progress, files=hashes)
                files.write_file(partial / STATE, [manifest.encode()])
                files.move(partial, path)
            except OSError:
                with suppress(OSError):
                    self._tidy()
                raise
        self._prune(progress.best_update)
        return path

    def record(self, progress: Progress) -> None:
        """Replace the progress of the checkpoint at `progress.update`, which validation has changed
        since it was saved."""
        path = self.path(progress.update) / STATE
        files.refuse_link(path.parent)
        manifest = self._manifest(progress.update).model_copy(update={"progress": progress})
        remedy = "the checkpoint is complete: run the same command again to repeat the validation"
        files.save(path, manifest.encode(), remedy)
        self._prune(progress.best_update)

    def resume(self, model: nn.Module, optimizer: Optimizer) -> Resumed | None:
        """Load the newest intact checkpoint; return None if there is no checkpoint at all.

        Damaged checkpoints are renamed to `damaged-update-…` and never deleted.

        Raises:
            ShapeshiftError: if all are damaged, or the newest intact one is of another model.
        """
        with files.writing(self.directory):
            self._tidy()
        damaged: dict[int, DamagedError] = {}
        for update in reversed(self.updates()):
            try:
                progress = self.restore(update, model, optimizer)
            except DamagedError as error:
                damaged[update] = error
            else:
                skipped = tuple(self._set_aside(x, error) for x, error in damaged.items())
                return Resumed(progress, self.path(update), skipped)
        if damaged:
            newest = next(iter(damaged.values()))
            raise ShapeshiftError(
                f"all {len(damaged)} checkpoints are damaged, the newest in {newest.reason}; move"
                " this folder away to begin anew",
                path=self.directory,
            )
        return None

    def restore(self, update: int, model: nn.Module, optimizer: Optimizer) -> Progress:
        """Load the checkpoint at `update` into a model and its optimiser, after comparing all of it
        with the hashes.

        Raises:
            DamagedError: if a file is missing or differs from what was saved.
            ShapeshiftError: if the checkpoint is another model's.
        """
        path, manifest = self.path(update), self._manifest(update)
        loaded = decode(read_verified(path, MODEL, manifest), path / MODEL)
        moments = decode(read_verified(path, OPTIMIZER, manifest), path / OPTIMIZER)
        state = _unflatten(moments, path / OPTIMIZER)
        assign(model, loaded, path / MODEL)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        return manifest.progress

    def progress(self, update: int) -> Progress:
        """Return the progress of the run at a checkpoint."""
        return self._manifest(update).progress

    def _prune(self, best: int | None) -> None:
        updates = self.updates()
        regular = [x for x in updates if x % self._every == 0]
        stays = {*regular[-self.keep :], updates[-1], best}
        remedy = "the new checkpoint is complete; an old one is not deleted"
        with files.writing(self.directory, remedy):
            for path in (self.path(x) for x in updates if x not in stays):
                # It loses its name first: an interrupted deletion leaves no half of a checkpoint.
                doomed = path.with_name(f"{files.PARTIAL}removed-{path.name}")
                files.move(path, doomed)
                files.remove(doomed)

    def _tidy(self) -> None:
        """Remove the remains of an interrupted save or deletion."""
        files.tidy(self.directory)
        for folder in self.directory.glob("update-*"):
            if not folder.is_symlink():
                files.tidy(folder)

    def _manifest(self, update: int) -> Manifest:
        path = self.path(update)
        manifest = read_manifest(path)
        if manifest.progress.update != update:
            raise DamagedError(f"is of update {manifest.progress.update}", path / STATE)
        return manifest

    def _set_aside(self, update: int, error: DamagedError) -> str:
        path = self.path(update)
        aside = path.with_name(f"damaged-{path.name}")
        while os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}-2")
        with files.writing(path, f"it is damaged ({error.reason}) and must be moved away"):
            files.move(path, aside)
        return f"checkpoint of update {update} is damaged ({error.reason}); kept as {aside}"


def _flatten(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as `PARAMETER.KEY` → tensor, parameters by their numbers. One
    that has had no gradient yet has no state."""
    return {
        f"{index}.{key}": value.cpu().contiguous()
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def _unflatten(tensors: dict[str, Tensor], path: Path) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in sorted(tensors.items()):  # safetensors returns them in any order
        index, _, key = name.partition(".")
        if not index.isdecimal():
            raise DamagedError(f"{name!r} does not belong to an optimiser", path)
        state[int(index)][key] = tensor
    return dict(state)
