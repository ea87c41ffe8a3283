"""A cell that processes train together: as if one did, however they end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import store
from shapeshift.lab import group
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell
from shapeshift.lab.launchers import InProcess, Subprocesses
from shapeshift.lab.locks import LockedError
from shapeshift.lab.measures import TRAIN
from shapeshift.lab.runner import run_cells
from shapeshift.lab.status import State
from shapeshift.lab.work import work
from shapeshift.training.log import read_log
from shapeshift.training.stopping import StopSignals

BASE = ("training.accumulation=2", "training.log_every=1", "training.checkpoint_every=10")
ENDLESS = (*BASE, "training.max_updates=100000")


def in_pairs():
    return Subprocesses([{"OMP_NUM_THREADS": "1"}], processes_per_run=2)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return tmp_path_factory.mktemp("prepared")


def make_cell(config):
    return Cell("mine", "tiny", {"position": "shape"}, config.training.seed, config)


def losses(folder):
    return [line["loss"] for line in read_log(folder.run / "log.jsonl") if "loss" in line]


class At:
    """An observer that does something to the job once its cell has trained a while."""

    def __init__(self, launcher, action):
        self._action = action
        start = launcher.start

        def remember(*given):
            self.job = start(*given)
            return self.job

        launcher.start = remember

    def changed(self, cell, status):
        if status.update >= 12 and self._action and status.state is State.RUNNING:
            self._action(self.job._process)
            self._action = None


def run_until(action, make_config, root, prepared):
    launcher = in_pairs()
    observer = At(launcher, action)
    cell = make_cell(make_config(*ENDLESS))
    report = run_cells(
        [cell], [], root, launcher, prepared_root=prepared, observer=observer, poll_s=0.1
    )
    return CellFolder(root / cell.key), report.statuses[cell.key], observer.job


def go_on(folder, make_config, root, prepared, update):
    """Train the run of an endless cell to its end, which is now at `update`."""
    cell = make_cell(make_config(*BASE, f"training.max_updates={update}"))
    shorter = CellFolder(root / cell.key)
    folder.path.rename(shorter.path)
    store(shorter.run, {"config.yaml": cell.config.to_yaml().encode()})
    assert run_cells([cell], [], root, InProcess(), prepared_root=prepared).ok
    return shorter


def test_a_group_trains_what_one_process_trains(make_config, prepared, tmp_path):
    cell = make_cell(make_config(*BASE, "training.max_updates=12"))
    folders = {}
    for name, launcher in (("group", in_pairs()), ("alone", InProcess())):
        root = tmp_path / name
        report = run_cells(
            [cell], ["score-valid"], root, launcher, prepared_root=prepared, poll_s=0.1
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


def test_a_group_that_is_stopped_saves_and_goes_on(make_config, prepared, tmp_path):
    ask = lambda process: process.terminate()  # noqa: E731
    folder, status, job = run_until(ask, make_config, tmp_path, prepared)
    assert job.poll() == 128 + signal.SIGTERM
    assert status.state is State.FAILED
    assert status.message.startswith("stopped by SIGTERM after update")
    done = int(status.message.split(" after update ")[1].split(",")[0])
    folder = go_on(folder, make_config, tmp_path, prepared, done + 3)
    assert len(losses(folder)) == done + 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_group_outlives_its_parent_by_an_update_and_keeps_the_lock(
    make_config, prepared, tmp_path
):
    members = []

    def kill(process):
        [torchrun] = _children(process.pid)
        members.extend([*_children(torchrun), torchrun])
        with _held(members):
            process.kill()
            process.wait(30)
            _refused(next(tmp_path.iterdir()), make_config, prepared)

    folder, status, job = run_until(kill, make_config, tmp_path, prepared)
    assert status.state is State.FAILED
    assert job.poll() == -signal.SIGKILL
    assert len(members) == 3  # torchrun and two processes
    _wait_for_end_of(members)
    done = len(losses(folder))
    assert done >= 12
    updates = [path.name for path in (folder.run / "checkpoints").iterdir()]
    assert f"update-{done:08d}" in updates
    assert len(losses(go_on(folder, make_config, tmp_path, prepared, done + 3))) == done + 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_group_that_loses_torchrun_saves(make_config, prepared, tmp_path):
    members = []

    def kill(process):
        [torchrun] = _children(process.pid)
        members.extend(_children(torchrun))
        with _held(members):
            os.kill(torchrun, signal.SIGKILL)
            process.wait(60)
            _refused(next(tmp_path.iterdir()), make_config, prepared)

    folder, status, _ = run_until(kill, make_config, tmp_path, prepared)
    assert status.state is State.FAILED
    assert "ended with status -9; see " in status.message
    _wait_for_end_of(members)
    updates = [path.name for path in (folder.run / "checkpoints").iterdir()]
    assert f"update-{len(losses(folder)):08d}" in updates


def test_what_goes_wrong_in_a_group_is_one_line(make_config, prepared, tmp_path):
    cell = make_cell(make_config("training.accumulation=3"))
    report = run_cells([cell], [], tmp_path, in_pairs(), prepared_root=prepared, poll_s=0.1)
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


def _refused(path, make_config, prepared):
    """Assert that another process cannot begin to train the cell."""
    with pytest.raises(LockedError, match="is at work here"):
        work(CellFolder(path), make_config(*ENDLESS), [], prepared)


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
