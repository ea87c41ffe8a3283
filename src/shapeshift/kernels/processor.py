"""Properties of the processor. They are read, never measured, so that all processes of a machine
agree."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from functools import cache
from pathlib import Path

import torch

_AVX2 = frozenset({"avx2", "fma"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_BF16 = _AVX512 | {"avx512_bf16"}
NEEDS = {
    "amx": _BF16 | {"amx_tile", "amx_bf16"},
    "avx512_bf16": _BF16,
    "avx512": _AVX512,
    "avx2": _AVX2,
    "baseline": frozenset[str](),
}
"""The instruction sets for which kernels are built (setup.py), the fastest first, and the flags
that a processor needs for each."""


@cache
def _description() -> str:
    """Return what Linux says about the first core; elsewhere nothing."""
    if sys.platform != "linux":
        return ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.partition("\n\n")[0]


@cache
def flags() -> frozenset[str]:
    """Return the instruction sets by their names in `/proc/cpuinfo`, such as `avx512_bf16`."""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", _description(), re.MULTILINE)
    return frozenset(match[1].split() if match else ())


def is_intel() -> bool:
    """Return whether Intel made the processor. Its dot products of bf16 pairs (AVX-512 bf16) take
    twice as long as products of float32; AMD's take half as long (docs/benchmarks.md)."""
    return "GenuineIntel" in _description()


@cache
def has_tiles() -> bool:
    """Return whether this process may use AMX tiles for bf16, and request them from Linux, as each
    process must before it uses them."""
    if "amx_bf16" not in flags() or platform.machine() != "x86_64":
        return False
    arch_prctl, request, tiles = 158, 0x1023, 18  # asm/unistd_64.h, asm/prctl.h
    return bool(ctypes.CDLL(None).syscall(arch_prctl, request, tiles) == 0)


def has_bf16_products() -> bool:
    """Return whether oneDNN multiplies bf16 on this CPU (on x86, from AVX-512 on). Otherwise
    PyTorch does, number by number: 9 to 77 times slower than float32 (docs/benchmarks.md)."""
    is_available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(is_available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def multiplies_bf16_faster() -> bool:
    """Return whether products in bf16 are faster here than in float32: with AMX, and with AMD's
    AVX-512 bf16; a fact about the processor and this build of PyTorch, the same in all
    processes."""
    return has_bf16_products() and (has_tiles() or ("avx512_bf16" in flags() and not is_intel()))


@cache
def instruction_sets() -> tuple[str, ...]:
    """Return which of `NEEDS` this process may use, in their order."""
    return tuple(
        name
        for name, needed in NEEDS.items()
        if needed <= flags() and (name != "amx" or has_tiles())
    )
