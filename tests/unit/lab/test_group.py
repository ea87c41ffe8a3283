"""A cell that processes train together: as if one did, however they end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab import group
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.launchers import InProcess, Subprocesses
from shapeshift.lab.locks import LockedError
from shapeshift.lab.measures import TRAIN
from shapeshift.lab.runner import run_cells
from shapeshift.lab.status import State
from shapeshift.training.log import read_log
from shapeshift.training.stopping import StopSignals

from .conftest import do_work

BASE = ("training.accumulation=2", "training.log_every=1", "training.checkpoint_every=10")
ENDLESS = (*BASE, "training.max_updates=100000")


def in_pairs():
    return Subprocesses([{"OMP_NUM_THREADS": "1"}], processes_per_run=2)


def losses(folder):
    return [line["loss"] for line in read_log(folder.run / "log.jsonl") if "loss" in line]


@pytest.fixture
def run_until(make_cell, acting, prepared, tmp_path):
    """Runs an endless cell until the action on its process has ended it."""

    def run(action):
        launcher, cell = in_pairs(), make_cell(*ENDLESS)
        observer = acting(launcher, lambda cell, job: action(job._process))
        report = run_cells(
            [cell], tmp_path, launcher, prepared_root=prepared, observer=observer, poll_s=0.1
        )
        return CellFolder(tmp_path / cell.key), report.statuses[cell.key], observer.jobs[cell.key]

    return run


@pytest.fixture
def assert_refused(make_cell, prepared, tmp_path):
    """Asserts that another process cannot begin to train the endless cell."""

    def check():
        cell = make_cell(*ENDLESS)
        with pytest.raises(LockedError, match="is at work here"):
            do_work(CellFolder(tmp_path / cell.key), cell.config, [], prepared)

    return check


def test_a_group_trains_what_one_process_trains(make_cell, prepared, tmp_path):
    cell = make_cell(*BASE, "training.max_updates=12")
    folders = {}
    for name, launcher in (("group", in_pairs()), ("alone", InProcess())):
        root = tmp_path / name
        report = run_cells(
            [replace(cell, steps=("score-valid",))],
            root,
            launcher,
            prepared_root=prepared,
            poll_s=0.1,
        )
        assert report.ok, report
        folders[name] = CellFolder(root / cell.key)
    assert len(losses(folders["group"])) == 12
    assert losses(folders["group"]) == pytest.approx(losses(folders["alone"]), rel=1e-3)
    hardware = {
        (name, step): folder.record(step, cell.config).hardware
        for name, folder in folders.items()
        for step in (TRAIN, "score-valid")
    }
    two = {key for key, value in hardware.items() if value.startswith("2 x ")}
    assert two == {("group", TRAIN)}


def test_a_group_that_is_stopped_saves_and_goes_on(run_until, go_on):
    folder, status, job = run_until(lambda process: process.terminate())
    assert job.poll() == 128 + signal.SIGTERM
    assert status.state is State.FAILED
    assert status.message.startswith("stopped by SIGTERM after update")
    done = int(status.message.split(" after update ")[1].split(",")[0])
    go_on(folder, done + 3, *BASE)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_group_outlives_its_parent_by_an_update_and_keeps_the_lock(
    run_until, go_on, assert_refused
):
    members = []

    def kill(process):
        [torchrun] = _children(process.pid)
        members.extend([*_children(torchrun), torchrun])
        with _held(members):
            process.kill()
            process.wait(30)
            assert_refused()

    folder, status, job = run_until(kill)
    assert status.state is State.FAILED
    assert job.poll() == -signal.SIGKILL
    assert len(members) == 3  # torchrun and two processes
    _wait_for_end_of(members)
    done = len(losses(folder))
    assert done >= 12
    updates = [path.name for path in (folder.run / "checkpoints").iterdir()]
    assert f"update-{done:08d}" in updates
    go_on(folder, done + 3, *BASE)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_group_that_loses_torchrun_saves(run_until, assert_refused):
    members = []

    def kill(process):
        [torchrun] = _children(process.pid)
        members.extend(_children(torchrun))
        with _held(members):
            os.kill(torchrun, signal.SIGKILL)
            process.wait(60)
            assert_refused()

    folder, status, _ = run_until(kill)
    assert status.state is State.FAILED
    assert "ended with status -9; see " in status.message
    _wait_for_end_of(members)
    updates = [path.name for path in (folder.run / "checkpoints").iterdir()]
    assert f"update-{len(losses(folder)):08d}" in updates


def test_what_goes_wrong_in_a_group_is_one_line(make_cell, prepared, tmp_path):
    cell = make_cell("training.accumulation=3")
    report = run_cells([cell], tmp_path, in_pairs(), prepared_root=prepared, poll_s=0.1)
    [failed] = report.failed
    message = report.statuses[failed.key].message
    assert "error: an update of 3 batches (training.accumulation) cannot be shared" in message
    assert "Traceback" not in message


def test_the_cause_is_told_and_not_its_consequence(tmp_path):
    folder = CellFolder(tmp_path)
    lost = "error: lost another process of the group (closed); see what that one says\n"
    folder.output.write_text(lost, encoding="utf-8")
    with pytest.raises(
        ShapeshiftError, match=r"^lost another process .*output\.log and .*torchrun"
    ):
        group._outcome(folder, 1, None)
    folder.output.write_text(f"{lost}error: the disk is full\n", encoding="utf-8")
    stop = StopSignals()
    stop.received = signal.SIGTERM  # does not hide it
    with pytest.raises(ShapeshiftError, match=r"^the disk is full$"):
        group._outcome(folder, 1, stop)


def test_processes_that_do_not_end_are_ended(monkeypatch):
    monkeypatch.setattr(group, "_GRACE_S", 0.1)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    stop = StopSignals()
    stop.received = signal.SIGTERM
    process = subprocess.Popen(sleeper, stdin=subprocess.PIPE)
    assert group._wait(process, stop) == -signal.SIGTERM


@contextmanager
def _held(members):
    """Let the processes wait, as if they took long to save."""
    for member in members:
        os.kill(member, signal.SIGSTOP)
    try:
        yield
    finally:
        for member in members:
            os.kill(member, signal.SIGCONT)


def _wait_for_end_of(members):
    deadline = time.monotonic() + 60
    while any(map(_is_alive, members)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text(encoding="utf-8").split()]


def _is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
