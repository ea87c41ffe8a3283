"""The command line in processes of its own: the same weights in each, an end in good order."""

import hashlib
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import shapeshift
from shapeshift.config import load_config
from shapeshift.lab.run import Run
from shapeshift.lab.train import train
from shapeshift.training.log import read_log
from shapeshift.training.observer import Observer

TOOLS = runpy.run_path(str(Path(__file__).parents[1] / "soak" / "commands.py"))
TRAIN = (sys.executable, "-m", "shapeshift", "train")
SOURCES = str(Path(shapeshift.__file__).parents[1])
TIMEOUT_S = 100


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A configuration and its text, which is found from any folder; prepared once."""
    folder = tmp_path_factory.mktemp("project")
    TOOLS["write_run"](folder, 9)
    path = folder / "toy.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["data"]["corpus"]["root"] = str(folder / "text")
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder


@pytest.fixture
def train_here(project, monkeypatch):
    """Trains in this process, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(project)
    yield lambda run, *overrides: train(
        load_config(project / "toy.yaml", overrides), run, Observer()
    )
    torch.set_num_threads(threads)


def start(command, project, *arguments, cwd=None, **environment):
    return subprocess.Popen(
        [*command, str(project / "toy.yaml"), *arguments, "--no-test"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": SOURCES} | environment,
        cwd=cwd or project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    """Return the exit status and all that was printed."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, output


def wait_until(done):
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_update(run, update):
    wait_until(lambda: any(line["update"] >= update for line in read_log(run / "log.jsonl")))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_is_the_same_in_every_process(project, tmp_path, train_here):
    """Whatever the hash seed, the folder, the prepared data's place and the history."""
    train_here(project / "here")
    train_here(project / "stopped", "training.max_updates=4")
    (tmp_path / "elsewhere").mkdir()
    hash_seed = "0" if os.environ.get("PYTHONHASHSEED") != "0" else "1"
    cwd, run = tmp_path / "elsewhere", str(tmp_path / "there")
    process = start(TRAIN, project, "--run", run, cwd=cwd, PYTHONHASHSEED=hash_seed)
    status, output = finish(process)
    assert status == 0, output
    runs = [project / "here", tmp_path / "there"]
    for file in ("checkpoints/update-00000009/optimizer.safetensors", "average.safetensors"):
        assert len({sha256(run / file) for run in runs}) == 1
    losses = [[line.get("loss") for line in read_log(run / "log.jsonl")] for run in runs]
    assert losses[0] == losses[1]
    assert sha256(project / "stopped" / "average.safetensors") != sha256(
        project / "here" / "average.safetensors"
    )


def test_signals_end_a_run_in_good_order(project):
    expected = {signal.SIGTERM: 143, signal.SIGINT: 130}
    processes = {}
    for number in expected:
        arguments = ("--run", number.name, "training.max_updates=100000")
        processes[number] = start(TRAIN, project, *arguments)
    for number, process in processes.items():
        try:
            wait_for_update(project / number.name, 5)
        finally:
            process.send_signal(number)
    for number, process in processes.items():
        status, output = finish(process)
        assert status == expected[number], output
        done = Run(project / number.name).checkpoints.updates()[-1]
        path = f"{number.name}/checkpoints/update-{done:08d}"
        line = f"stopped by {number.name} after update {done}, saved in {path}; the same command"
        assert line in output
        assert "Traceback" not in output


def test_torchrun_starts_a_group_that_trains_as_one_process(project, train_here):
    options = ("--standalone", "--nproc-per-node", "2", "-m", "--", "shapeshift", "train")
    launcher = (sys.executable, "-m", "torch.distributed.run", *options)
    status, output = finish(start(launcher, project, "--run", "group"))
    assert status == 0, output
    train_here(project / "alone")
    losses = [
        [line["loss"] for line in read_log(project / name / "log.jsonl") if "loss" in line]
        for name in ("group", "alone")
    ]
    assert len(losses[1]) == 9
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
