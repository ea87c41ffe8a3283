"""Threads: how many, and how they wait."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest
import torch

from shapeshift._system import threads
from shapeshift._system.threads import SETTINGS, num_cores, set_num_threads

from ..cli.running import python

OPENMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SOURCES = Path(__file__).resolve().parents[3] / "src"


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
    kept = {name: value for name, value in os.environ.items() if name not in OPENMP}
    python("-c", code, env=kept | {"PYTHONPATH": str(SOURCES)}, check=True)


@pytest.fixture
def torch_threads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What PyTorch is told about threads, and `watched` where idle ones are watched."""
    told: list[object] = []
    for name in OPENMP:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1] if told else 2)
    monkeypatch.setattr(threads, "_start_watch", lambda: told.append("watched"))
    return told


WATCHED = ["watched"] * (sys.platform == "linux")


@pytest.mark.parametrize(
    ("cores", "dim", "expected"),
    [(64, 32, [1]), (64, 64, [2, *WATCHED]), (3, 512, [3, *WATCHED]), (1, 512, [1])],
)
def test_threads_follow_the_cores_and_the_width(monkeypatch, torch_threads, cores, dim, expected):
    monkeypatch.setattr(threads, "num_cores", lambda: cores)
    set_num_threads(dim)
    assert torch_threads == expected


def test_a_setting_in_the_environment_is_left_alone(monkeypatch, torch_threads):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    set_num_threads(512)
    assert torch_threads == WATCHED
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        torch_threads.clear()
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1000")
            set_num_threads(512)
        assert torch_threads == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
@pytest.mark.parametrize(
    ("given", "anew", "for_others"),
    [
        ({}, True, set()),
        (SETTINGS, False, set()),  # as after the program has started anew, and in a worker
        ({"GLIBC_TUNABLES": ""}, False, {"GLIBC_TUNABLES"}),
    ],
)
def test_what_is_set_for_this_process_is_not_for_other_programs(
    monkeypatch, given, anew, for_others
):
    monkeypatch.setattr(os, "environ", dict(given))
    assert threads.apply_settings() == anew
    assert os.environ.keys() == SETTINGS.keys()
    assert threads.environment_of_others().keys() == for_others


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
