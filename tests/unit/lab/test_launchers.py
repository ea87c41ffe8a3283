"""Cells in processes: killed, interrupted, several at a time, on GPUs, on a cluster."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shapeshift.config import parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.launchers import InProcess, Slurm, Subprocesses
from shapeshift.lab.locks import LockedError
from shapeshift.lab.runner import RefusedError, run_cells
from shapeshift.lab.status import State
from shapeshift.lab.work import Order
from shapeshift.training.log import read_log

from .conftest import do_work


def test_workers_that_are_killed_or_orphaned_lose_nothing(
    make_cell, acting, go_on, prepared, tmp_path
):
    base = ("training.log_every=1", "training.checkpoint_every=10")
    cells = [
        make_cell(f"training.seed={seed}", "training.max_updates=100000", *base) for seed in (1, 2)
    ]
    locked = []

    def kill_or_orphan(cell, job):
        if cell.seed == 2:
            job._process.stdin.close()  # as if its parent had died
            return
        with pytest.raises(LockedError) as error:
            do_work(CellFolder(tmp_path / cell.key), cell.config, [], prepared)
        locked.append(str(error.value))
        job._process.send_signal(signal.SIGKILL)

    launcher = Subprocesses.on_cpu(2)
    observer = acting(launcher, kill_or_orphan)
    report = run_cells(
        cells, tmp_path, launcher,
        prepared_root=prepared, observer=observer, poll_s=0.1, command="-c 'import shapeshift'",
    )  # fmt: skip
    killed, orphaned = (report.statuses[cell.key] for cell in cells)
    assert (killed.state, orphaned.state) == (State.FAILED, State.FAILED)
    assert killed.message == "ended with status -9 and no message"
    assert orphaned.message.startswith("stopped by SIGTERM after update")
    assert "is at work here" in locked[0]
    assert observer.jobs[cells[1].key].poll() == 128 + signal.SIGTERM

    for cell, before in zip(cells, (killed, orphaned), strict=True):
        folder = CellFolder(tmp_path / cell.key)
        saved = _checkpoints(folder)
        now = _checkpoints(go_on(folder, before.update + 10, f"training.seed={cell.seed}", *base))
        assert saved
        assert all(now[name] == made for name, made in saved.items() if name in now)


def test_the_update_shows_before_the_first_line_of_the_log(make_cell, acting, prepared, tmp_path):
    cell = make_cell(
        *("training.max_updates=100000", "training.log_every=100000"),
        "training.checkpoint_every=100000",
    )
    launcher = Subprocesses.on_cpu(1)
    observer = acting(launcher, lambda _, job: job.interrupt())  # once it has seen an update
    report = run_cells(
        [cell], tmp_path, launcher,
        prepared_root=prepared, observer=observer, poll_s=0.1, command="x",
    )  # fmt: skip
    assert "stopped by SIGTERM after update" in report.statuses[cell.key].message
    assert not read_log(CellFolder(tmp_path / cell.key).run / "log.jsonl")[:-1]


def _checkpoints(folder):
    """Return the name of each checkpoint and when its weights were written."""
    found = (folder.run / "checkpoints").glob("update-*/model.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


@pytest.mark.parametrize(
    ("make", "variable", "values"),
    [
        (lambda: Subprocesses([{"X": "0"}, {"X": "GPU-5e"}]), "X", ["0", "GPU-5e"]),
        (lambda: Subprocesses.on_cpu(2), "OMP_NUM_THREADS", ["3", "3"]),
        (lambda: Subprocesses.on_cpu(1), "OMP_NUM_THREADS", ["7"]),
        (lambda: Subprocesses.on_cpu(9), "OMP_NUM_THREADS", ["1"] * 9),
    ],
)
def test_each_slot_has_its_gpu_or_its_share_of_the_cores(
    make, variable, values, tmp_path, monkeypatch
):
    given = []
    monkeypatch.setattr("shapeshift.lab.launchers.num_cores", lambda: 7)
    monkeypatch.setattr("subprocess.Popen", lambda command, env, **_: given.append(env))
    launcher = make()
    assert launcher.num_slots == len(values)
    order = Order(folder=tmp_path, config={}, steps=(), prepared_root=tmp_path, command="x")
    for slot in range(launcher.num_slots):
        launcher.start(order, slot)
    assert [env[variable] for env in given] == values
    assert all(env["PATH"] == os.environ["PATH"] for env in given)


def test_runs_are_measured_in_the_environment_of_the_first_slot():
    config = parse_config({}, ["model.size=tiny", "data.subwords.vocab_size=100"])
    (ours,), (theirs,) = (x.measure([config]) for x in (InProcess(), Subprocesses([{}, {}])))
    assert theirs[0] == ours[0]  # parameters
    assert 0 < theirs[1] < 60
    on_gpu = parse_config({}, ["training.device=cuda"])
    with pytest.raises(ShapeshiftError, match=r"^(?!shapeshift).*GPU"):
        Subprocesses([{"CUDA_VISIBLE_DEVICES": ""}]).measure([on_gpu])


@pytest.mark.parametrize(
    ("dim", "num_runs", "cores", "threads", "num_slots"),
    [
        (64, 1, 2, "1", 2),
        (64, 3, 2, "1", 3),
        (64, 6, 2, "1", 2),
        (64, 9, 2, "1", 3),
        (256, 3, 2, "2", 1),
        (256, 3, 8, "4", 2),
    ],
)
def test_narrow_runs_leave_no_core_idle_and_wide_ones_get_threads(
    make_cell, monkeypatch, dim, num_runs, cores, threads, num_slots
):
    monkeypatch.setattr("shapeshift.lab.launchers.num_cores", lambda: cores)
    cells = [
        make_cell(f"model.dim={dim}", f"training.seed={seed + 1}", "training.device=cpu")
        for seed in range(num_runs)
    ]
    launcher = Subprocesses.for_cells(cells + cells)
    assert launcher._environments == [{"OMP_NUM_THREADS": threads}] * num_slots


@pytest.mark.parametrize(
    ("seen", "count", "given"),
    [
        (None, 2, ["0", "1"]),
        ("3, 5", 2, ["3", "5"]),
        ("3,5,-1", 2, ["3", "5"]),
        ("GPU-5e,GPU-a1", 2, ["GPU-5e", "GPU-a1"]),
        ("MIG-a,MIG-b", 1, ["MIG-a", "MIG-b"]),
    ],
)
def test_each_run_has_a_gpu(seen, count, given, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    environments = Subprocesses.on_gpus()._environments
    assert environments == [{"CUDA_VISIBLE_DEVICES": device} for device in given]


def test_a_cell_runs_through_submitit_itself(make_cell, prepared, tmp_path):
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10}, cluster="local")
    cell = make_cell("training.max_updates=15")
    cells = tmp_path / "cells"
    assert run_cells(
        [replace(cell, steps=("score-test",))], cells, launcher, prepared_root=prepared
    ).ok
    updates = [line["update"] for line in read_log(cells / cell.key / "run" / "log.jsonl")]
    assert max(updates) == 15


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_job_that_is_cancelled_saves_and_says_so(make_cell, acting, prepared, tmp_path):
    """As SLURM does it, by SIGTERM to the process of the job."""
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10}, cluster="local")
    cell = make_cell("training.max_updates=3000", "training.log_every=1")

    def cancel(cell, job):
        submitted = job._job._process.pid
        for child in Path(f"/proc/{submitted}/task/{submitted}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)

    observer = acting(launcher, cancel)
    report = run_cells(
        [cell], tmp_path / "cells", launcher, prepared_root=prepared, observer=observer
    )
    [status] = report.statuses.values()
    assert status.state is State.FAILED
    assert status.message.startswith("stopped by SIGTERM")
    assert len(status.message.splitlines()) == 1


def test_a_job_that_the_cluster_killed_is_reported_with_its_last_lines(make_cell, tmp_path):
    class Killed:
        def done(self):
            return True

        def result(self):
            raise TimeoutError("the job was killed")

        def stderr(self):
            return "slurmstepd: error: Exceeded job memory limit\n"

    launcher, cell = Slurm(tmp_path / "jobs", 1, {}, cluster="local"), make_cell()
    launcher._executor.submit = lambda *_: Killed()
    report = run_cells([cell], tmp_path / "cells", launcher, poll_s=0.0)
    assert report.statuses[cell.key].message.endswith("Exceeded job memory limit")


def test_what_submitit_refuses_is_one_line(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"SLURM refuses the jobs: [^\n]*no_such_parameter"):
        Slurm(tmp_path, 1, {"no_such_parameter": 1}, cluster="local")


def test_what_sbatch_prints_is_one_line(make_cell, tmp_path, monkeypatch, capfd):
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    failed = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    for name, lines in (("srun", []), ("sbatch", [f"echo '{limit}\n{failed}' >&2", "exit 1"])):
        program = tmp_path / name
        program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10})
    with pytest.raises(RefusedError, match=f"^SLURM refuses the jobs: {limit} {failed}$"):
        run_cells([make_cell()], tmp_path / "cells", launcher)
    assert capfd.readouterr().err == ""


def test_without_submitit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ShapeshiftError, match=r"pip install '\.\[slurm\]'"):
        Slurm(Path("jobs"), 1, {})
