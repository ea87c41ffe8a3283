"""Threads: how many, and how they wait."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from shapeshift import threads
from shapeshift.threads import SETTINGS, num_cores

from .cli.running import python

VARIABLES = {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", *SETTINGS}
SOURCES = Path(__file__).resolve().parents[2] / "src"


def run(variables: dict[str, str], code: str, *args: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    env = kept | {"PYTHONPATH": str(SOURCES)} | variables
    return python("-c", code, *args, env=env, check=True)


SEEN = """
from shapeshift import threads
anew = threads.apply_settings()
own, names = sorted(threads._own), (*threads.SETTINGS, "OMP_WAIT_POLICY")
workers = threads.environment_of_workers({"OMP_WAIT_POLICY": "passive"})
others = threads.environment_of_others()
print(anew, *own)
for environment in (workers, others):
    print(*sorted(name for name in names if name in environment))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_what_is_set_for_this_process_is_not_for_other_programs():
    """Workers get it, but for a count of turns next to another way to wait."""
    all_three = ["GLIBC_TUNABLES", "GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE"]
    rest = [all_three[0], "OMP_WAIT_POLICY", all_three[2]]
    for given, lines in (
        ({}, [["True", *all_three], rest, []]),
        (SETTINGS, [["False", *all_three], rest, []]),  # as after the program has started anew
        (
            {"GOMP_SPINCOUNT": "1", "GLIBC_TUNABLES": ""},
            [["False", all_three[2]], sorted([*rest, "GOMP_SPINCOUNT"]), all_three[:2]],
        ),
        (
            {"OMP_WAIT_POLICY": "active"},
            [["True", all_three[0], all_three[2]], rest, ["OMP_WAIT_POLICY"]],
        ),
    ):
        found = [line.split() for line in run(dict(given), SEEN).stdout.split("\n")[:3]]
        assert found == lines


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_threads_follow_the_affinity_mask_the_width_and_the_environment():
    code = """
import os
from shapeshift.threads import set_num_threads
import torch
for num_cores, dim in ((64, 32), (64, 64), (1, 512)):
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:num_cores])
    set_num_threads(dim)
    print(torch.get_num_threads())
"""

    def threads(**variables: str) -> list[int]:
        return [*map(int, run(variables, code).stdout.split())]

    wide = min(2, len(os.sched_getaffinity(0)))
    assert threads() == [1, wide, 1]  # a narrow model takes one of all cores
    assert threads(OMP_NUM_THREADS="2") == [2, 2, 2]


@pytest.mark.parametrize(
    ("content", "expected"), [("150000 100000\n", 2), ("1000 100000", 1), ("max 100000\n", None)]
)
def test_the_quota_of_a_container_counts(tmp_path, monkeypatch, content, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    (tmp_path / "cpu.max").write_text(content)
    assert num_cores(tmp_path) == (expected or 64)
    assert num_cores(tmp_path / "none") == 64


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_others_use_is_measured(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    busy = iter([100.0, 103.0])
    clock = iter([0.0, 2.0])
    monkeypatch.setattr(threads, "_busy_seconds", lambda _: next(busy))
    monkeypatch.setattr(threads.time, "monotonic", lambda: next(clock))
    used = threads.watch_others()()
    assert used == 1.5
    assert threads.is_crowded(cores - 0.5, 1)
    assert not threads.is_crowded(cores - 1.0, 1)
