"""What a run measured, line by line, and as TensorBoard curves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from shapeshift.disk import Disk, replace_file
from shapeshift.errors import ShapeshiftError


class Log:
    """`log.jsonl` and `tensorboard/` in a run's folder.

    Each line is one JSON object with `update`; training lines have `loss`, validation lines
    `valid_loss`. Lines of updates that were undone by a restart are taken out.

    Args:
        directory: the run's folder.
        update: updates that are already done; later lines are dropped.
        validated: whether the validation of the last one is done; else its line is dropped, too.
    """

    def __init__(self, directory: Path, update: int, validated: bool = True):
        path = directory / "log.jsonl"
        kept = [
            line
            for line in read_log(path)
            if line["update"] < update + ("valid_loss" not in line or validated)
        ]
        replace_file(Disk(), path, [json.dumps(line).encode() + b"\n" for line in kept])
        self._file = path.open("a", encoding="utf-8")
        self._curves = SummaryWriter(str(directory / "tensorboard"), purge_step=update + 1)

    def write(self, update: int, **values: float) -> None:
        """Append a line."""
        self._file.write(json.dumps({"update": update, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._curves.add_scalar(name, value, update)

    def sync(self) -> None:
        """Wait until all lines are on the disk: a checkpoint must not outlive them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close both."""
        self._file.close()
        self._curves.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; none if there is no file, and without a torn last line.

    Raises:
        ShapeshiftError: if a line is not a JSON object with `update`, or it cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror}", path=path) from error
    return [_parse(line, path, number) for number, line in enumerate(lines[:-1], start=1)]


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(line)
        values["update"] + 0
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ShapeshiftError(
            f"not a line of a log ({error}); remove the line or the file", path=path, line=number
        ) from error
    return values
