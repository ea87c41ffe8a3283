"""The validations of a run, by updates and by the time that training took.

Kiyono et al. 2021 (SHAPE), Figure 8 (updates) and Figure 9 (wall clock).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from shapeshift.errors import ShapeshiftError
from shapeshift.training.log import read_log


@dataclass(frozen=True)
class RunCurve:
    """The validations of one run, in the order of training.

    Attributes:
        updates: after how many updates.
        elapsed_s: seconds of training, with validation and saving but without the time between a
            stop and a restart; `None` where the log does not have it.
        perplexity: exp(nats a target token).
    """

    updates: tuple[int, ...]
    elapsed_s: tuple[float, ...] | None
    perplexity: tuple[float, ...]


def read_run(directory: str | Path) -> RunCurve:
    """Return the validations of one run.

    Raises:
        ShapeshiftError: there are none, or the log is damaged.
    """
    path = Path(directory) / "log.jsonl"
    lines = [line for line in read_log(path) if "valid_loss" in line]
    if not lines:
        raise ShapeshiftError(
            "no validation is logged there yet; name the folder of a run that has validated",
            path=path,
        )
    timed = all("elapsed_s" in line for line in lines)
    return RunCurve(
        tuple(int(line["update"]) for line in lines),
        tuple(float(line["elapsed_s"]) for line in lines) if timed else None,
        tuple(math.exp(line["valid_loss"]) for line in lines),
    )
