"""PyTorch's threads on a CPU, how idle threads wait, and environment variables for memory. Only the
command line sets them: a library does not change its host's settings."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

_CROWDED = 0.3
"""CPU oversubscription, in cores, above which idle threads sleep."""

SETTINGS = {
    # What is in glibc's caches of small blocks does not join the free memory next to it, so that
    # the place of a freed tensor is too small for the next one of its size. Without them training
    # needs 13 to 22 % less memory and 4 to 9 % less time (dev/log.md).
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0",
    # Large tensors in huge pages, where Linux leaves that to programs: less memory, and less time
    # for its pages (dev/log.md).
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""What the command line sets in its environment, where the user has not set it: glibc reads it
when a program starts, PyTorch when it first needs memory."""


def apply_settings() -> bool:
    """Set `SETTINGS` in the environment. Return whether the program must restart, because glibc
    reads `GLIBC_TUNABLES` when a process starts."""
    before = set(os.environ)
    wanted = dict(SETTINGS)
    if sys.platform != "linux" or "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        del wanted["GLIBC_TUNABLES"]
    for name, value in wanted.items():
        os.environ.setdefault(name, value)
    return "GLIBC_TUNABLES" in set(os.environ) - before


def environment_of_others() -> dict[str, str]:
    """Return the environment for other programs, without the variables that this process or the one
    that started it has set."""
    return {name: value for name, value in os.environ.items() if SETTINGS.get(name) != value}


def num_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may use: its affinity mask, and in a container the quota
    of its control group (version 2)."""
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
    """Give PyTorch as many threads as a model of width `dim` can use, and no more than `num_cores`.

    Products of narrow matrices are too short to share among many threads: one thread for every 32
    numbers of the model's width, so 4 for d = 128 and 16 for d = 512. `OMP_NUM_THREADS` in the
    environment takes precedence.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(num_cores(), dim // 32)))
    given = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if sys.platform == "linux" and torch.get_num_threads() > 1 and not given:
        _start_watch()


def watch_others() -> Callable[[], float]:
    """Return a function that returns the mean number of cores that other processes have used since;
    0 if unknown."""
    if sys.platform != "linux":
        return lambda: 0.0
    cores = sorted(os.sched_getaffinity(0))
    busy, began = _busy_seconds(cores), time.monotonic()

    def used() -> float:
        elapsed = time.monotonic() - began
        return max(0.0, _busy_seconds(cores) - busy) / elapsed if elapsed else 0.0

    return used


def is_crowded(others: float, num_threads: int) -> bool:
    """Return whether this process's threads and other programs together want more cores than
    exist."""
    return others + num_threads - num_cores() > _CROWDED


@cache
def _start_watch() -> None:
    threading.Thread(target=_watch, daemon=True).start()


WATCH_INTERVAL_S = 1.0
"""How often it is looked whether other processes need the cores."""


def _watch(interval_s: float = WATCH_INTERVAL_S) -> None:
    """Every `interval_s`, let idle OpenMP threads sleep if other processes need the cores, or spin.

    A thread of libgomp waits for work 300,000 turns (milliseconds) before it sleeps. If another
    process uses one of the cores, it keeps the thread that it waits for from running, and training
    takes 4 to 8 times as long. libgomp waits 100 turns when there are more OpenMP threads than
    cores (its manual, GOMP_SPINCOUNT), which threads with a team of their own bring about: training
    keeps half of its speed (`benchmarks/busy_neighbour.py`). If the cores are free, half would be
    lost.
    """
    import torch

    num_cores, num_threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    end: threading.Event | None = None
    while True:
        used = watch_others()
        time.sleep(interval_s)
        wanted = used() + num_threads - num_cores
        if end is None and wanted > _CROWDED:
            end = threading.Event()
            for _ in range((num_cores - 1) // (num_threads - 1)):
                threading.Thread(target=_hold_team, args=(end,), daemon=True).start()
        elif end is not None and wanted < _CROWDED / 2:
            end.set()  # the end of a thread is that of its team
            end = None


def _hold_team(end: threading.Event) -> None:
    import torch

    torch.ones(1 << 17).add_(1)  # large enough to be computed by all threads
    end.wait()


def _busy_seconds(cores: list[int]) -> float:
    """Return the processor time of other processes in seconds. Processes of low priority do not
    count if this one has a higher priority."""
    lines = map(str.split, Path("/proc/stat").read_text().splitlines())
    times = {name: map(int, rest) for name, *rest in lines}
    total = 0
    for core in cores:
        user, nice, system, _, _, interrupts, soft_interrupts, steal, *_ = times[f"cpu{core}"]
        total += user + system + interrupts + soft_interrupts + steal
        total += nice if os.nice(0) > 0 else 0
    own = os.times()
    return total / os.sysconf("SC_CLK_TCK") - own.user - own.system
