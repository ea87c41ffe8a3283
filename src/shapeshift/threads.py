"""How many threads PyTorch computes with on a CPU, and how they wait for each other.

Both are decided by the command line alone: a library does not change its host's settings.
"""

from __future__ import annotations

import os
from pathlib import Path

_SPIN_COUNT, _SPIN_COUNT_INTEL = "1000", "10000"
"""How often an idle OpenMP thread looks for work before it sleeps.

libgomp's default is 300,000 (milliseconds). Where another process uses one of the cores, the
threads that spin keep the one that they wait for from running, and training becomes several times
slower than with a single thread; threads that sleep do not. Of its speed when nothing else runs,
an AMD processor keeps 0.95 with 1,000, one with AMX only 0.68, but 0.94 with 10,000
(docs/benchmarks.md, `benchmarks/busy_neighbour.py`)."""

_WIDTH_PER_THREAD = 32


def set_spin_count(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Let idle OpenMP threads sleep soon. Settings in the environment take precedence.

    libgomp reads the variable when it is loaded: call this before `torch` is imported.

    Args:
        cpuinfo: describes the processor.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT_INTEL if _is_intel(cpuinfo) else _SPIN_COUNT


def _is_intel(cpuinfo: Path) -> bool:
    try:
        return "GenuineIntel" in cpuinfo.read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:  # there is none but on Linux
        return False


def num_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may use: its affinity mask, and in a container its quota.

    Args:
        cgroup: where the control group (version 2) of this process is mounted.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        return min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no control group, or `max`: no quota
        return cores


def set_num_threads(dim: int) -> None:
    """Give PyTorch as many threads as a model of this width can use, and no more than `num_cores`.

    Products of narrow matrices are too short to share among many threads: one thread for every 32
    numbers of the model's width, so 4 for d = 128 and 16 for d = 512. `OMP_NUM_THREADS` in the
    environment takes precedence.

    Args:
        dim: D, the width of the model.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, min(num_cores(), dim // _WIDTH_PER_THREAD)))
