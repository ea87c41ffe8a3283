"""Threads: how many, and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shapeshift.threads import num_cores, set_spin_count

SOURCES = Path(__file__).resolve().parents[2] / "src"

PROBE = """
import sys, shapeshift.cli
sys.argv = ["shapeshift", *sys.argv[1:]]
try:
    shapeshift.cli.main()
except SystemExit:
    pass
import os
print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT"), file=sys.stderr)
"""


def run(variables: dict[str, str], code: str, *args: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env=kept | {"PYTHONPATH": str(SOURCES)} | variables,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_command_line_lets_idle_threads_sleep_and_torch_is_not_loaded_before():
    loaded, count = run({}, PROBE, "--version").stderr.split()
    assert loaded == "False"
    assert int(count) > 0


@pytest.mark.parametrize(
    ("cpuinfo", "given", "count"),
    [
        ("vendor_id : GenuineIntel\n", {}, "10000"),
        ("vendor_id : AMD\n", {}, "1000"),
        (None, {}, "1000"),
        (None, {"GOMP_SPINCOUNT": "7"}, "7"),
        (None, {"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_the_spin_count_is_the_processor_s_or_the_user_s(
    tmp_path, monkeypatch, cpuinfo, given, count
):
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    set_spin_count(tmp_path / "cpuinfo")
    assert os.environ.get("GOMP_SPINCOUNT") == count


def test_importing_the_library_changes_no_setting():
    code = "import os, shapeshift.positions; print(os.environ.get('GOMP_SPINCOUNT'))"
    assert run({}, code).stdout.strip() == "None"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_threads_follow_the_affinity_mask_the_width_and_the_environment():
    code = """
import os, sys
from shapeshift.threads import set_num_threads
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:int(sys.argv[1])])
set_num_threads(int(sys.argv[2]))
import torch
print(torch.get_num_threads())
"""

    def threads(num_cores: int, dim: int, **variables: str) -> int:
        return int(run(variables, code, str(num_cores), str(dim)).stdout)

    assert threads(1, 512) == 1
    assert threads(64, 32) == 1  # as many as there are, but a model this narrow takes one
    if len(os.sched_getaffinity(0)) > 1:
        assert threads(64, 64) == 2
    assert threads(1, 512, OMP_NUM_THREADS="2") == 2


@pytest.mark.parametrize(
    ("content", "expected"), [("150000 100000\n", 2), ("1000 100000", 1), ("max 100000\n", None)]
)
def test_the_quota_of_a_container_counts(tmp_path, monkeypatch, content, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    (tmp_path / "cpu.max").write_text(content)
    assert num_cores(tmp_path) == (expected or 64)
    assert num_cores(tmp_path / "none") == 64
