"""Runs in processes: killed, interrupted, several at a time, on GPUs, on a cluster."""

import os
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
from shapeshift.study.work import STOPPED
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
    assert killed.endswith("ended by signal 9 (Killed)")
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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_job_that_slurm_stops_saves_and_is_submitted_again(
    plan_run, go_on, prepared, tmp_path, number
):
    """Preemption is SIGTERM to the process of the job, the time limit what submitit asks for."""
    launcher = Slurm(tmp_path / "jobs", 1, {"timeout_min": 10}, cluster="local")
    planned = plan_run("training.log_every=1", "training.max_updates=300")
    planned = replace(planned, measures=("score-test",))
    submitted = []

    def stop(planned, job):
        process = job._job._process.pid
        submitted.append(job)
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            os.kill(int(child), number)

    observer = Acting(launcher, stop)
    runs = tmp_path / "runs"
    assert (
        run_all(
            [planned], runs, launcher, prepared_root=prepared, changed=observer.changed, poll_s=0.05
        )
        == []
    )
    [first], folder = submitted, RunFolder(runs / planned.key)
    assert first.poll() == STOPPED
    assert observer.jobs[planned.key] is not first
    go_on(folder, 301, "training.log_every=1")


def test_a_job_that_is_stopped_and_comes_no_further_has_failed(plan_run, tmp_path):
    stopped = SimpleNamespace(done=lambda: True, result=lambda: STOPPED)
    launcher, jobs = Slurm(tmp_path / "jobs", 1, {}, cluster="local"), []
    planned = plan_run("training.max_updates=9")
    saved = RunFolder(tmp_path / "runs" / planned.key).run / "checkpoints"

    def submit(*_):
        jobs.append(stopped)
        (saved / f"update-{min(len(jobs), 3)}").mkdir(parents=True, exist_ok=True)
        return stopped

    launcher._executor.submit = submit
    failed = run_all([planned], tmp_path / "runs", launcher, poll_s=0.0)
    assert failed[0][1] == f"ended with status {STOPPED} and no message"
    assert len(jobs) == 4  # the last one saved nothing


def test_jobs_are_cancelled_though_scancel_fails(plan_run, tmp_path, monkeypatch):
    cancelled = []

    def submit(_, order):
        def cancel(check):
            assert not check
            cancelled.append(order.config.training.seed)
            raise FileNotFoundError("scancel")

        return SimpleNamespace(done=lambda: False, cancel=cancel)

    launcher = Slurm(tmp_path / "jobs", 2, {}, cluster="local")
    launcher._executor.submit = submit
    runs = [plan_run(f"training.seed={seed}") for seed in (1, 2)]
    monkeypatch.setattr(runner.time, "sleep", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, tmp_path / "runs", launcher)
    assert cancelled == [1, 2]


def test_a_job_that_the_cluster_killed_is_reported_with_its_last_lines(plan_run, tmp_path):
    def result():
        raise TimeoutError("the job was killed")

    killed = SimpleNamespace(done=lambda: True, result=result)
    killed.stderr = lambda: "slurmstepd: error: Exceeded job memory limit\n"
    launcher, planned = Slurm(tmp_path / "jobs", 1, {}, cluster="local"), plan_run()
    launcher._executor.submit = lambda *_: killed
    failed = run_all([planned], tmp_path / "runs", launcher, poll_s=0.0)
    assert failed[0][1].endswith("Exceeded job memory limit")


def test_a_job_that_never_began_is_not_explained_by_an_earlier_one(plan_run, tmp_path):
    def result():
        raise RuntimeError("state: CANCELLED")

    launcher, planned = Slurm(tmp_path / "jobs", 1, {}, cluster="local"), plan_run()
    never = SimpleNamespace(done=lambda: True, result=result, stderr=lambda: None)
    launcher._executor.submit = lambda *_: never
    folder = RunFolder(tmp_path / "runs" / planned.key)
    folder.path.mkdir(parents=True)
    folder.output.write_text("stopped by SIGTERM after update 121\n")
    [(_, line)] = run_all([planned], tmp_path / "runs", launcher, poll_s=0.0)
    assert line == "state: CANCELLED"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"no_such_parameter": 1}, "submitit refuses the jobs: .*no_such_parameter"),
        ({"timeout_min": "abc"}, "submitit refuses the jobs: .*timeout_min"),
        ({"slurm_ntasks_per_node": 2}, "one task of a job; leave slurm_ntasks_per_node=2 out"),
        ({"nodes": 2}, "leave nodes=2 out"),
    ],
)
def test_what_submitit_refuses_is_one_line(tmp_path, parameters, message):
    with pytest.raises(ShapeshiftError, match=message) as error:
        Slurm(tmp_path, 1, parameters, cluster="local")
    assert "\n" not in str(error.value)


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
