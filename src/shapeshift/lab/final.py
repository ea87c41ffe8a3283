"""The final model of a run: the mean of its last checkpoints, or a copy of its best one."""

from __future__ import annotations

from pathlib import Path

from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import TrainingConfig
from shapeshift.training.manifest import MODEL, DamagedError, Progress
from shapeshift.training.weights import average, is_average_of, read_weights

AVERAGE = "average.safetensors"


def check_final(
    directory: Path, checkpoints: Checkpoints, training: TrainingConfig, progress: Progress
) -> None:
    """Check that every checkpoint which is there and which the final model will be made of is
    intact, unless that model is finished.

    Raises:
        ShapeshiftError: one is damaged or was deleted. A mean of fewer is never taken instead.
    """
    updates = _updates_of_final(training, progress)
    if is_average_of(directory / AVERAGE, [checkpoints.path(x) / MODEL for x in updates]):
        return
    for update in reversed([x for x in updates if x <= progress.update]):
        path = checkpoints.path(update)
        try:
            read_weights(path / MODEL)
        except ShapeshiftError as error:
            reason = error.reason if isinstance(error, DamagedError) else "it is missing"
            remedy = "training.final_weights=average"
            if training.final_weights == "average":
                newer = sum(x > update for x in updates)
                remedy = f"training.average_checkpoints={max(1, newer)}"
            raise ShapeshiftError(
                f"the final model is made of this checkpoint, which cannot be used ({reason});"
                f" continue with {remedy}, or train in a new folder",
                path=path,
            ) from error


def make_final(
    directory: Path, checkpoints: Checkpoints, training: TrainingConfig, progress: Progress
) -> None:
    """Write the final model, unless it is there.

    Raises:
        ShapeshiftError: see `check_final`; or it cannot be written.
    """
    check_final(directory, checkpoints, training, progress)
    paths = [checkpoints.path(x) / MODEL for x in _updates_of_final(training, progress)]
    if not is_average_of(directory / AVERAGE, paths):
        average(paths, directory / AVERAGE)


def averaged_updates(training: TrainingConfig, last: int) -> list[int]:
    """Return after which updates the checkpoints are saved whose mean is the final model."""
    every = training.checkpoint_every
    return [*range(every, last, every), last][-training.average_checkpoints :]


def _updates_of_final(training: TrainingConfig, progress: Progress) -> list[int]:
    if training.final_weights == "best":
        return [] if progress.best_update is None else [progress.best_update]
    return averaged_updates(training, training.last_update(progress))
