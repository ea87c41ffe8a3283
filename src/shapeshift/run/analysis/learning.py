"""Shift invariance during training, measured at the kept checkpoints."""

from __future__ import annotations

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.prepared import Prepared
from shapeshift.run.analysis import similarity, swapped_order
from shapeshift.run.folder import Run
from shapeshift.run.measures import Result, bleu_of

SHIFTS = (10, 40, 100, 500)
"""The largest offsets under which states are compared."""


def measure(run: Run, data: Prepared) -> list[Result]:
    """Measure shift invariance during training: what `similarity` and `swapped-order` measure, and
    BLEU on the validation set, of the last checkpoint in each eighth of training, if one is kept;
    `update` is that of the checkpoint. Offsets are 0, K/5, K/2 and K for each K of `SHIFTS` (bucket
    `layer n to K`): 500 are the paper's.

    Raises:
        ShapeshiftError: a checkpoint is missing that `training.keep_checkpoints` keeps.
    """
    rows = []
    sources, references = data.text("valid")
    for update in _last_of_eighths(run):
        which = str(update)
        hypotheses = list(run.translator(which).translate(sources))
        own = bleu_of(run.config, hypotheses, references, "valid")
        for most in SHIFTS:
            offsets = (0, most // 5, most // 2, most)
            own += similarity.measure(run, data, which, offsets, f" to {most}")
        own += swapped_order.measure(run, data, which)
        rows += [each.model_copy(update={"update": update}) for each in own]
    return rows


def _last_of_eighths(run: Run) -> list[int]:
    """Return the update of the last checkpoint in each eighth of training that has one."""
    kept, training = run.checkpoints.updates(), run.config.training
    last, every = max(kept, default=1), training.checkpoint_every
    due = [*range(every, last + 1, every)][-training.keep_checkpoints :]
    eighths = {-(-8 * update // last): update for update in sorted({*kept, *due})}
    if missing := {*eighths.values()} - {*kept}:
        raise ShapeshiftError(
            f"does not have the checkpoints of {len(missing)} updates, such as {min(missing):,}:"
            " the run was trained with a smaller training.keep_checkpoints than"
            f" {training.keep_checkpoints}; remove the folder {run.directory.parent} and run the"
            " same command again, which trains it anew",
            path=run.checkpoints.directory,
        )
    return [*eighths.values()]
