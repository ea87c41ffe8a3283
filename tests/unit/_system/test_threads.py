"""Threads: how many, and how they wait."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from shapeshift._system import threads
from shapeshift._system.threads import SETTINGS, num_cores

from ..cli.running import python

OPENMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SOURCES = Path(__file__).resolve().parents[3] / "src"


def run(variables: dict[str, str], code: str, *args: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in (*OPENMP, *SETTINGS)}
    env = kept | {"PYTHONPATH": str(SOURCES)} | variables
    return python("-c", code, *args, env=env, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_threads_stop_spinning_while_others_need_the_cores():
    code = """
import os, sys, threading, time, torch
from shapeshift._system import threads
torch.set_num_threads(2)
torch.ones(1 << 17).add_(1)
busy = [0.0]  # seconds of others
threads._busy_seconds = lambda cores: busy[0] * time.monotonic()
def num_threads():
    return len(os.listdir("/proc/self/task"))
def wait_for(number):
    end = time.monotonic() + 30
    while num_threads() != number:
        assert time.monotonic() < end, (num_threads(), number)
        time.sleep(0.01)
threading.Thread(target=threads._watch, args=(0.1,), daemon=True).start()
cores = len(os.sched_getaffinity(0))
quiet = num_threads()
busy[0] = cores - 2 + 0.5
wait_for(quiet + 2 * (cores - 1))  # teams of two: more OpenMP threads than cores
busy[0] = cores - 2
wait_for(quiet)
"""
    run({}, code)


def test_a_setting_in_the_environment_is_left_alone():
    code = """
from shapeshift._system import threads
threads._start_watch = lambda: print("watched")
threads.num_cores = lambda: 2
threads.set_num_threads(64)
"""
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        assert run({variable: "1000"}, code).stdout == ""
    assert run({}, code).stdout == ("watched\n" if sys.platform == "linux" else "")


SEEN = """
from shapeshift._system import threads
anew = threads.apply_settings()
others = threads.environment_of_others()
print(anew)
print(*sorted(name for name in threads.SETTINGS if name in others))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_what_is_set_for_this_process_is_not_for_other_programs():
    for given, lines in (
        ({}, [["True"], []]),
        (SETTINGS, [["False"], []]),  # as after the program has started anew, and in a worker
        ({"GLIBC_TUNABLES": ""}, [["False"], ["GLIBC_TUNABLES"]]),
    ):
        found = [line.split() for line in run(dict(given), SEEN).stdout.split("\n")[:2]]
        assert found == lines


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_threads_follow_the_affinity_mask_the_width_and_the_environment():
    code = """
import os
from shapeshift._system.threads import set_num_threads
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
