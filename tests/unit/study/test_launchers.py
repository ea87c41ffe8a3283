"""Runs in processes: killed, interrupted, several at a time, on GPUs, on a cluster."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.locks import LockedError
from shapeshift.run.record import RunFolder
from shapeshift.study import runner
from shapeshift.study.launchers import RefusedError, Slurm, Subprocesses
from shapeshift.study.runner import run_all
from shapeshift.training.log import read_log

from ..conftest import Acting, do_work


def test_workers_that_are_killed_or_orphaned_lose_nothing(plan_run, go_on, prepared, tmp_path):
    base = ("training.log_every=1", "training.checkpoint_every=10")
    long = ("training.max_updates=100000", *base)
    runs = [plan_run(f"training.seed={seed}", *long) for seed in (1, 2)]
    locked = []

    def kill_or_orphan(planned, job):
        if planned.seed == 2:
            job._process.stdin.close()  # as if its parent had died
            return
        with pytest.raises(LockedError) as error:
            do_work(RunFolder(tmp_path / planned.key), planned.config, [], prepared)
        locked.append(str(error.value))
        job._process.send_signal(signal.SIGKILL)

    launcher = Subprocesses.on_cpu(2)
    observer = Acting(launcher, kill_or_orphan)
    failed = run_all(
        runs, tmp_path, launcher,
        prepared_root=prepared, changed=observer.changed, poll_s=0.1,
        command="-c 'import shapeshift'",
    )  # fmt: skip
    killed, orphaned = ({x.key: lines for x, lines in failed}[planned.key] for planned in runs)
    assert killed == "ended with status -9 and no message"
    assert orphaned.startswith("stopped by SIGTERM after update")
    assert "another process is at work here" in locked[0]
    assert observer.jobs[runs[1].key].poll() == 128 + signal.SIGTERM

    for planned in runs:
        folder = RunFolder(tmp_path / planned.key)
        saved = _checkpoints(folder)
        last = read_log(folder.run / "log.jsonl")[-1]["update"]
        go_on(folder, last + 10, f"training.seed={planned.seed}", *base)
        now = _checkpoints(folder)
        assert saved
        assert all(now[name] == made for name, made in saved.items() if name in now)


def _checkpoints(folder):
    """Return the name of each checkpoint and when its weights were written."""
    found = (folder.run / "checkpoints").glob("update-*/model.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


def started(launcher, runs, monkeypatch, tmp_path):
    """Return the environments of the processes that start at once."""
    environments = []

    def start(order, environment):
        environments.append(environment)
        return SimpleNamespace(poll=lambda: None)

    monkeypatch.setattr("shapeshift.study.launchers._Process", start)
    rest = lambda *_: None, tmp_path, "", launcher.num_slots
    runner._Runner(tmp_path, launcher, *rest, queue=[*runs]).advance()
    return environments


@pytest.mark.parametrize(
    ("dims", "cores", "threads"),
    [
        ([64], 2, "1"),
        ([64, 64, 64], 2, "111"),  # all at once
        ([64] * 6, 2, "11"),
        ([64] * 9, 2, "111"),  # rounds of equal size
        ([256, 256, 256], 2, "2"),
        ([256, 256, 256], 8, "44"),
        ([256, 256], 3, "3"),
        ([64, 256, 64], 2, "1"),  # the wide one waits for both cores, the others behind it
        ([64, 64, 256], 2, "11"),
        ([64, 256, 64, 64, 64, 64], 8, "14111"),
    ],
)
def test_the_threads_of_a_run_depend_on_its_width_and_the_cores_alone(
    plan_run, monkeypatch, tmp_path, dims, cores, threads
):
    monkeypatch.setattr("shapeshift.study.launchers.num_cores", lambda: cores)
    runs = [
        plan_run(f"model.dim={dim}", f"training.seed={seed}", "training.device=cpu")
        for seed, dim in enumerate(dims)
    ]
    environments = started(Subprocesses.for_runs(runs + runs), runs, monkeypatch, tmp_path)
    assert environments == [{"OMP_NUM_THREADS": n} for n in threads]


def test_several_jobs_by_request_have_the_same_threads(plan_run, monkeypatch, tmp_path):
    monkeypatch.setattr("shapeshift.study.launchers.num_cores", lambda: 2)
    runs = [plan_run(f"model.dim={dim}", "training.device=cpu") for dim in (64, 256)]
    narrow, wide = started(Subprocesses.on_cpu(2), runs, monkeypatch, tmp_path)
    assert narrow == {"OMP_NUM_THREADS": "1"}
    assert wide == {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


@pytest.mark.parametrize(
    ("seen", "devices"),
    [("", ["0", "1"]), ("3, 5", ["3", "5"]), ("MIG-a,MIG-b", ["MIG-a", "MIG-b"])],
)
def test_each_run_has_a_gpu(plan_run, seen, devices, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    launcher = Subprocesses.for_runs([plan_run("training.device=cuda")])
    assert launcher._environments == [{"CUDA_VISIBLE_DEVICES": device} for device in devices]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_cell_runs_through_submitit_and_saves_when_it_is_cancelled(
    plan_run, go_on, prepared, tmp_path
):
    """As SLURM does it, by SIGTERM to the process of the job."""
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10}, cluster="local")
    base = ("training.log_every=1", "training.max_updates=3000")
    planned = plan_run(*base)

    def cancel(planned, job):
        submitted = job._job._process.pid
        for child in Path(f"/proc/{submitted}/task/{submitted}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)

    runs = tmp_path / "runs"
    changed = Acting(launcher, cancel).changed
    failed = run_all([planned], runs, launcher, prepared_root=prepared, changed=changed)
    [(_, line)] = failed
    assert line.startswith("stopped by SIGTERM")
    (done,) = map(int, re.findall(r"after update (\d+)", line))
    go_on(RunFolder(runs / planned.key), done + 1, "training.log_every=1")
    short = replace(plan_run("training.max_updates=2"), measures=("score-test",))
    assert run_all([short], runs, launcher, prepared_root=prepared) == []


def test_a_job_that_the_cluster_killed_is_reported_with_its_last_lines(plan_run, tmp_path):
    def result():
        raise TimeoutError("the job was killed")

    killed = SimpleNamespace(done=lambda: True, result=result)
    killed.stderr = lambda: "slurmstepd: error: Exceeded job memory limit\n"
    launcher, planned = Slurm(tmp_path / "jobs", 1, {}, cluster="local"), plan_run()
    launcher._executor.submit = lambda *_: killed
    failed = run_all([planned], tmp_path / "runs", launcher, poll_s=0.0)
    assert failed[0][1].endswith("Exceeded job memory limit")


def test_what_submitit_refuses_is_one_line(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"SLURM refuses the jobs: [^\n]*no_such_parameter"):
        Slurm(tmp_path, 1, {"no_such_parameter": 1}, cluster="local")


def test_what_sbatch_prints_is_one_line(plan_run, tmp_path, monkeypatch, capfd):
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    failed = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    for name, lines in (("srun", []), ("sbatch", [f"echo '{limit}\n{failed}' >&2", "exit 1"])):
        program = tmp_path / name
        program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10})
    with pytest.raises(RefusedError, match=f"^SLURM refuses the jobs: {limit} {failed}$"):
        run_all([plan_run()], tmp_path / "runs", launcher)
    assert capfd.readouterr().err == ""
