"""GPUs by name, for estimates: what they multiply at most, and what of it training reaches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shapeshift.errors import ShapeshiftError, nearest

UTILISATION = {torch.bfloat16: 0.3, torch.float32: 0.5}
"""Share of the peak that training a Transformer of the papers' sizes may reach: an assumption."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, by its maker's data sheet.

    Attributes:
        title: for people.
        memory: bytes.
        fp32: dense peak of matrix products in fp32, 10^12 FLOP/s, without TF32.
        bf16: the same in bf16, added up in fp32, without sparsity; None where there is none, and
            training is in fp32.
    """

    title: str
    memory: int
    fp32: float
    bf16: float | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The type that training multiplies in with `training.precision=auto`."""
        return torch.float32 if self.bf16 is None else torch.bfloat16

    def peak(self, dtype: torch.dtype) -> float:
        """Return the peak in 10^12 FLOP/s."""
        return self.fp32 if dtype == torch.float32 or self.bf16 is None else self.bf16

    def speed(self, dtype: torch.dtype) -> float:
        """Return what training may reach in 10^12 FLOP/s; see `UTILISATION`."""
        exact = torch.float32 if self.bf16 is None else dtype
        return self.peak(exact) * UTILISATION[exact]


_GB = 10**9

GPUS: dict[str, Gpu] = {
    "k40": Gpu("K40", 12 * _GB, 4.3),
    "k80": Gpu("K80, half of it", 12 * _GB, 4.1),
    "p100": Gpu("P100 SXM2", 16 * _GB, 10.6),
    "v100": Gpu("V100 SXM2 32 GB", 32 * _GB, 15.7),
    "a100": Gpu("A100 SXM 80 GB", 80 * _GB, 19.5, 312),
    "h100": Gpu("H100 SXM", 80 * _GB, 67, 989),
    "h200": Gpu("H200 SXM", 141 * _GB, 67, 989),
    "l40s": Gpu("L40S", 48 * _GB, 91.6, 362),
    "rtx3090": Gpu("RTX 3090", 24 * _GB, 35.6, 71),
    "rtx4090": Gpu("RTX 4090", 24 * _GB, 82.6, 165),
}
"""Name → GPU."""


def find_gpu(name: str) -> Gpu:
    """Return a GPU, by its name in upper or lower case.

    Raises:
        ShapeshiftError: there is none of this name.
    """
    found = GPUS.get(name.lower())
    if found is None:
        raise ShapeshiftError(
            f"unknown GPU {name!r}{nearest(name.lower(), GPUS)} (known: {', '.join(GPUS)})"
        )
    return found
