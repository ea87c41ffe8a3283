"""Checkpoints: safetensors and JSON in a folder that appears complete or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shapeshift.disk import (
    PARTIAL,
    Disk,
    free_bytes,
    make_directory,
    remove_directory,
    replace_file,
    write_file,
)
from shapeshift.errors import ShapeshiftError
from shapeshift.training.manifest import (
    MODEL,
    OPTIMIZER,
    STATE,
    DamagedError,
    File,
    Manifest,
    Name,
    Progress,
    read_manifest,
    read_verified,
)
from shapeshift.training.weights import Encoded, assign, check_weights, decode, encode, weights

_NAME = re.compile(r"update-(\d{8,})")
_REPLACED = ".replaced-"
_ASIDE = "damaged-"

MOMENTS = 2
"""Tensors of a parameter's shape that Adam, AdamW and RAdam keep."""

_KEPT = ("exp_avg", "exp_avg_sq", "step")
"""What they keep of a parameter."""


@dataclass(frozen=True)
class Skipped:
    """A damaged checkpoint.

    Attributes:
        update: whose it was.
        reason: what is wrong with it.
        path: the folder where it now lies.
    """

    update: int
    reason: str
    path: Path

    def __str__(self) -> str:
        return f"checkpoint of update {self.update} is damaged ({self.reason}); kept as {self.path}"


@dataclass(frozen=True)
class Resumed:
    """From where a run goes on.

    Attributes:
        progress: how far it was.
        path: the checkpoint.
        skipped: newer ones that are damaged, the newest first.
    """

    progress: Progress
    path: Path
    skipped: tuple[Skipped, ...]

    def __str__(self) -> str:
        return f"going on after update {self.progress.update}, from {self.path}"


class Checkpoints:
    """The checkpoints of one run, `update-00005000/` and so on, oldest first.

    Args:
        directory: the folder that holds them; made with the first one.
        keep: how many newest ones stay. The best one always stays.
        disk: what files are changed through.
        every: updates between regular checkpoints. Others, saved at a stop or before a validation,
            are deleted when the next one is saved, unless they are the best: they must not take
            the place of one that is averaged.
    """

    def __init__(
        self, directory: Path, keep: int, disk: Disk | None = None, *, every: int | None = None
    ):
        self.directory = directory
        self.keep = keep
        self._every = every or 1
        self._disk = disk or Disk()

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
            ShapeshiftError: if a weight is not finite, for nothing could continue from there; if
                the disk is full or fails. Earlier checkpoints are then as they were.
        """
        tensors = weights(model)
        self._require_finite(tensors, progress.update)
        moments, numbers = _flatten(optimizer)
        contents: dict[Name, Encoded] = {MODEL: encode(tensors), OPTIMIZER: encode(moments)}
        final = self.path(progress.update)
        partial = final.with_name(PARTIAL + final.name)
        try:
            self._tidy()
            make_directory(self._disk, self.directory)
            self._write(partial, contents, progress, numbers)
            self._commit(partial, final)
        except OSError as error:
            with suppress(OSError):
                self._tidy()
            needed = sum(content.num_bytes for content in contents.values())
            raise ShapeshiftError(
                f"cannot be saved ({error.strerror}); it needs {needed:,} bytes and"
                f" {free_bytes(self.directory):,} are free; earlier checkpoints are untouched: fix"
                " that and run the same command again",
                path=final,
            ) from error
        self._prune(progress.best_update)
        return final

    def record(self, progress: Progress) -> None:
        """Replace the progress of the checkpoint at `progress.update`, which validation has changed
        since it was saved: all of the file, or nothing.

        Raises:
            ShapeshiftError: if the disk is full or fails; the checkpoint is then as it was.
        """
        path = self.path(progress.update) / STATE
        manifest = self._manifest(progress.update).model_copy(update={"progress": progress})
        try:
            replace_file(self._disk, path, [manifest.encode()])
        except OSError as error:
            raise ShapeshiftError(
                f"cannot be written ({error.strerror}); the checkpoint is complete: make room and"
                " run the same command again, which repeats the validation",
                path=path,
            ) from error
        self._prune(progress.best_update)

    def resume(self, model: nn.Module, optimizer: Optimizer) -> Resumed | None:
        """Load the newest checkpoint that is intact; return None if there is no checkpoint at all.

        DamagedError ones are renamed to `damaged-update-…`, out of the way, and never deleted.

        Raises:
            ShapeshiftError: if all are damaged, or the newest intact one is of another model.
        """
        try:
            self._tidy()
        except OSError as error:
            raise ShapeshiftError(
                f"leftovers of a save cannot be removed ({error.strerror})", path=self.directory
            ) from error
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
        """Load the checkpoint at `update` into a model and an optimiser of the same shapes.

        All of it is compared with the hashes and the shapes before any of it is used.

        Raises:
            DamagedError: if a file is missing or not as it was saved.
            ShapeshiftError: if it is another model's.
        """
        path = self.path(update)
        manifest = self._manifest(update)
        loaded = decode(read_verified(path, MODEL, manifest), path / MODEL)
        moments = decode(read_verified(path, OPTIMIZER, manifest), path / OPTIMIZER)
        check_weights(model, loaded, path / MODEL)
        state = _unflatten(optimizer, moments, manifest.optimizer, path / OPTIMIZER)
        assign(model, loaded, path / MODEL)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        return manifest.progress

    def progress(self, update: int) -> Progress:
        """Return how far the run was at a checkpoint.

        Raises:
            DamagedError: if its manifest is missing or not as it was saved.
        """
        return self._manifest(update).progress

    def require_space(self, model: nn.Module, num_saves: int) -> None:
        """Raise `ShapeshiftError` if what is to be saved will not fit on the disk.

        At most there are `keep` newest checkpoints, the best one, one that is not regular (see
        `every`) and the one being written, and the average.

        Args:
            model: what is to be saved, with an optimiser that keeps two moments.
            num_saves: how many checkpoints are still to come.
        """
        num_bytes = encode(weights(model)).num_bytes
        each = (1 + MOMENTS) * num_bytes
        there = len(self.updates())
        more = max(0, min(there + num_saves, self.keep + 3) - there)
        needed, free = more * each + num_bytes, free_bytes(self.directory)
        if needed > free:
            raise ShapeshiftError(
                f"{needed:,} bytes will be needed ({more} more checkpoints of {each:,} and the"
                f" average) and {free:,} are free; make room, or keep fewer with"
                f" training.keep_checkpoints (now {self.keep})",
                path=self.directory,
            )

    def _require_finite(self, tensors: Mapping[str, Tensor], update: int) -> None:
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise ShapeshiftError(
                    f"{name} is not finite after update {update}, so no checkpoint was written;"
                    " train in a new folder with a lower learning rate or with training.clip_norm",
                    path=self.directory,
                )

    def _write(
        self,
        partial: Path,
        contents: Mapping[Name, Encoded],
        progress: Progress,
        numbers: dict[str, bool | int | float],
    ) -> None:
        disk = self._disk
        disk.mkdir(partial)
        files: dict[Name, File] = {}
        for name, content in contents.items():
            written = write_file(disk, partial / name, content.chunks())
            files[name] = File(bytes=written.num_bytes, sha256=written.sha256)
        manifest = Manifest(progress=progress, optimizer=numbers, files=files)
        write_file(disk, partial / STATE, [manifest.encode()])
        disk.sync_directory(partial)

    def _commit(self, partial: Path, final: Path) -> None:
        disk = self._disk
        if os.path.lexists(final):  # `_tidy` gives it its name back if we get no further
            replaced = final.with_name(_REPLACED + final.name)
            disk.rename(final, replaced)
            disk.rename(partial, final)
            disk.sync_directory(self.directory)
            self._delete([replaced])
        else:
            disk.rename(partial, final)
            disk.sync_directory(self.directory)

    def _prune(self, best: int | None) -> None:
        updates = self.updates()
        regular = [x for x in updates if x % self._every == 0]
        stays = {*regular[-self.keep :], updates[-1], best}
        try:
            self._delete(self.path(x) for x in updates if x not in stays)
        except OSError as error:
            raise ShapeshiftError(
                f"an old checkpoint cannot be deleted ({error.strerror}); the new one is complete",
                path=self.directory,
            ) from error

    def _delete(self, paths: Iterable[Path]) -> None:
        # They lose their names first: a deletion that is cut short leaves no half of a checkpoint.
        doomed = [(path, path.with_name(f"{PARTIAL}removed-{path.name}")) for path in paths]
        for path, nameless in doomed:
            self._disk.rename(path, nameless)
        if doomed:
            self._disk.sync_directory(self.directory)
        for _, nameless in doomed:
            remove_directory(self._disk, nameless)

    def _tidy(self) -> None:
        """Remove what a stop left of a save, and give a checkpoint back whose place was not taken
        by its successor."""
        if not self.directory.is_dir():
            return
        for pattern in (PARTIAL + "*", f"update-*/{PARTIAL}*"):
            for path in list(self.directory.glob(pattern)):
                remove_directory(self._disk, path)
        for path in list(self.directory.glob(_REPLACED + "*")):
            final = path.with_name(path.name.removeprefix(_REPLACED))
            if os.path.lexists(final):
                self._delete([path])
            else:
                self._disk.rename(path, final)
                self._disk.sync_directory(self.directory)

    def _manifest(self, update: int) -> Manifest:
        path = self.path(update)
        manifest = read_manifest(path)
        if manifest.progress.update != update:
            raise DamagedError(f"is of update {manifest.progress.update}", path / STATE)
        return manifest

    def _set_aside(self, update: int, error: DamagedError) -> Skipped:
        path = self.path(update)
        aside, number = path.with_name(_ASIDE + path.name), 1
        while os.path.lexists(aside):
            number += 1
            aside = path.with_name(f"{_ASIDE}{path.name}-{number}")
        try:
            self._disk.rename(path, aside)
            self._disk.sync_directory(self.directory)
        except OSError as failed:
            raise ShapeshiftError(
                f"is damaged ({error.reason}) and cannot be moved away ({failed.strerror})",
                path=path,
            ) from failed
        return Skipped(update, error.reason, aside)


def _flatten(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, bool | int | float]]:
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, bool | int | float] = {}
    state = optimizer.state_dict()["state"]
    for index, parameter in enumerate(_parameters(optimizer) if any(state.values()) else ()):
        for key, value in (state.get(index) or _first_state(parameter)).items():
            name = f"{index}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value.cpu().contiguous()
            else:
                numbers[name] = value
    return tensors, numbers


def _unflatten(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], numbers: Mapping[str, float], path: Path
) -> dict[int, dict[str, Tensor | float]]:
    """Return the state by the number of the parameter, as `Optimizer.load_state_dict` wants it:
    that of all parameters, or of none where no step was taken."""
    parameters = _parameters(optimizer)
    state: dict[int, dict[str, Tensor | float]] = {}
    values: dict[str, Tensor | float] = {**tensors, **numbers}
    for name, value in sorted(values.items()):
        index, _, key = name.partition(".")
        known = index.isdecimal() and int(index) < len(parameters)
        shapes = (parameters[int(index)].shape, torch.Size()) if known else ()
        if not known or (isinstance(value, Tensor) and value.shape not in shapes):
            raise ShapeshiftError(
                f"holds another optimiser's state: {name!r} fits no parameter", path=path
            )
        state.setdefault(int(index), {})[key] = value
    lacking = [
        f"{index}.{key}"
        for index in (range(len(parameters)) if state else ())
        for key in _KEPT
        if key not in state.get(index, {})
    ]
    if lacking:
        raise DamagedError(
            f"lacks {len(lacking)} of the optimiser's tensors, {lacking[0]!r} for one", path
        )
    return state


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _first_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return what the optimiser begins with, for a parameter that has had no gradient yet."""
    zeros = torch.zeros_like(parameter)
    return {"exp_avg": zeros, "exp_avg_sq": zeros, "step": torch.zeros(())}
