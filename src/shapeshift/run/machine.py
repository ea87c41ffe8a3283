"""The device and precision of a run, stored in its folder. `auto` settings depend on the machine; a
run must continue, and be compared, with those it began with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, ValidationError

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read
from shapeshift._system.hashes import verify
from shapeshift._system.schema import Strict
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import choose_device, choose_precision, describe_hardware

MACHINE = "machine.json"
_REMEDY = "remove it, and the run continues as this machine would begin it"


class Machine(Strict):
    """Device, precision, threads and hardware of a run.

    Attributes:
        device: the kind of device.
        precision: of matrix products.
        threads: of PyTorch, on a CPU.
        hardware: the name of the device, where the run began.
    """

    device: Literal["cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    threads: int = Field(ge=1)
    hardware: str

    @classmethod
    def here(cls, training: TrainingConfig, local_rank: int | None = None) -> Machine:
        """Return the machine settings with which a new run would begin here.

        Raises:
            ShapeshiftError: it lacks the device or the precision.
        """
        device = choose_device(training.device, local_rank)
        dtype = choose_precision(training.precision, device)
        return cls(
            device="cpu" if device.type == "cpu" else "cuda",
            precision="fp32" if dtype == torch.float32 else "bf16",
            threads=torch.get_num_threads(),
            hardware=describe_hardware(device),
        )

    @classmethod
    def read(cls, run: Path) -> Machine | None:
        """Return the machine settings with which a run began; None if its folder, of an earlier
        version, lacks them.

        Raises:
            ShapeshiftError: the file is damaged.
        """
        path = run / MACHINE
        if not path.exists():
            return None
        verify(run, MACHINE, remedy=_REMEDY)
        try:
            return cls.model_validate_json(read(path))
        except (OSError, ValidationError) as error:
            raise ShapeshiftError(
                f"does not say what a run began on; {_REMEDY}", path=path
            ) from error

    def __str__(self) -> str:
        return f"{self.precision} on {'a CPU' if self.device == 'cpu' else 'a GPU'}"

    def settings(self, training: TrainingConfig) -> TrainingConfig:
        """Return training settings with `auto` replaced by this device and precision."""
        own: dict[str, str] = {"precision": self.precision}
        if training.device == "auto":
            own["device"] = self.device
        return training.model_copy(update=own)

    def continued(
        self, training: TrainingConfig, run: Path, local_rank: int | None = None
    ) -> TrainingConfig:
        """Check that the run in a folder can continue here, and return `settings` for it.

        Raises:
            ShapeshiftError: `training.device` is of another kind, or this machine lacks what the
                run began with.
        """
        settings, reason = self.settings(training), f"training.device={training.device}"
        try:
            here = Machine.here(settings, local_rank)
            if here.device == self.device:
                return settings
        except ShapeshiftError as error:
            reason = str(error).partition(";")[0]
        raise ShapeshiftError(
            f"began in {self} ({self.hardware}), which cannot be continued here ({reason});"
            f" continue it on such a machine, name a new folder, or remove {MACHINE} to continue in"
            " what this machine has",
            path=run,
        )
