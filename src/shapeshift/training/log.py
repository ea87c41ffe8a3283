"""The log of a run (JSON lines and TensorBoard curves), and the metrics between two lines."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_FILE, open_in_place, read, save, writing
from shapeshift.data.sources.files import reading
from shapeshift.model import Loss
from shapeshift.training.parallel import Parallel


class Log:
    """`log.jsonl` and `tensorboard/` in a run's folder.

    Each line is one JSON object with `update` and `elapsed_s`, the seconds of training so far
    without the time between a stop and a restart; training lines have `loss`, validation lines
    `valid_loss`. Lines of updates that a restart repeats are removed.

    Args:
        directory: the run's folder.
        update: the last complete update; later lines are removed.
        validated: whether its validation is complete; if not, its line is removed, too.
        elapsed_s: seconds of training that these updates took.
    """

    def __init__(
        self, directory: Path, update: int, validated: bool = True, elapsed_s: float = 0.0
    ):
        self._path, self._curves_path = directory / "log.jsonl", directory / "tensorboard"
        kept = [
            line
            for line in read_log(self._path)
            if line["update"] < update + ("valid_loss" not in line or validated)
        ]
        save(self._path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = open_in_place(self._path, "a")
        with writing(self._curves_path):
            self._curves = SummaryWriter(str(self._curves_path), purge_step=update + 1)
        self._began = time.perf_counter() - elapsed_s

    def write(self, update: int, **values: float) -> None:
        """Append a line."""
        elapsed_s = round(time.perf_counter() - self._began, 3)
        line = {"update": update, **values, "elapsed_s": elapsed_s}
        with writing(self._path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        with writing(self._curves_path):
            for name, value in values.items():
                self._curves.add_scalar(name, value, update)

    def sync(self) -> None:
        """Flush all lines to the disk, so that no checkpoint is newer than they are."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close both."""
        with writing(self._curves_path), closing(self._curves), writing(self._path):
            self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without an incomplete last line; none if there is no file."""
    if not path.is_file():
        return []
    with reading(path):
        lines = read(path, MAX_FILE).split(b"\n")
    parsed = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            parsed.append(json.loads(line))
            parsed[-1]["update"] + 0
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            message = f"not a line of a log ({error}); remove the line or the file"
            raise ShapeshiftError(message, path=path, line=number) from error
    return parsed


class RunningMetrics:
    """Loss and speed since it was made, for the next line of the log."""

    def __init__(self, device: torch.device):
        self._sums = torch.zeros(3, device=device, dtype=torch.float64)
        self._began = time.perf_counter()

    def add(self, losses: list[Loss]) -> None:
        """Add the losses of an update, without waiting for the device."""
        for loss in losses:
            num_tokens = torch.full_like(loss.nll, loss.num_tokens)
            self._sums += torch.stack([loss.smoothed.detach(), loss.nll, num_tokens])

    def read(self, parallel: Parallel) -> dict[str, float]:
        """Return `loss` and `nll` a token and `tokens_per_s`, of all processes."""
        loss, nll, num_tokens = parallel.all_reduce(self._sums).tolist()
        elapsed_s = max(time.perf_counter() - self._began, 1e-9)  # of a coarse clock
        return {
            "loss": loss / num_tokens,
            "nll": nll / num_tokens,
            "tokens_per_s": round(num_tokens / elapsed_s, 1),
        }
