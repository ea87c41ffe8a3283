"""The command line in processes of its own: the same weights in each, an end in good order."""

import hashlib
import os
import signal
from pathlib import Path

import pytest
import torch

import shapeshift
from shapeshift.config import load_config
from shapeshift.run.folder import Run
from shapeshift.run.train import train
from shapeshift.training.log import read_log
from shapeshift.training.observer import Observer

from ..soak.commands import Command, write_run
from ..unit.cli.running import ENVIRONMENT, python

TRAIN = ("-m", "shapeshift", "train")
SOURCES = str(Path(shapeshift.__file__).parents[1])


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A configuration and its text, which is found from any folder; prepared once."""
    folder = tmp_path_factory.mktemp("project")
    parts = [{"kind": "sinusoidal", "place": "embedding"}, {"kind": "t5", "place": "self"}]
    write_run(folder, 9, position={"position_ids": {"name": "shifted"}, "parts": parts})
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


def train_there(project, run, *command, cwd=None, **environment):
    """Train in a new process; return what it wrote to standard error."""
    options = ("--run", run, "--no-test")
    environment = ENVIRONMENT | {"PYTHONPATH": SOURCES} | environment
    done = python(*command, project / "toy.yaml", *options, cwd=cwd or project, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def losses(run):
    return [line["loss"] for line in read_log(run / "log.jsonl") if "loss" in line]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_is_the_same_in_every_process(project, tmp_path, train_here):
    """Whatever the hash seed, the folder, the prepared data's place and the history."""
    here, there, stopped = project / "here", tmp_path / "there", project / "stopped"
    train_here(here)
    train_here(stopped, "training.max_updates=4")
    (tmp_path / "elsewhere").mkdir()
    hash_seed = "0" if os.environ.get("PYTHONHASHSEED") != "0" else "1"
    settings = {"PYTHONHASHSEED": hash_seed, "PYTHONPROFILEIMPORTTIME": "1"}
    imported = train_there(project, there, *TRAIN, cwd=tmp_path / "elsewhere", **settings)
    assert "torch.optim" in imported
    assert "torch._dynamo" not in imported  # 1.4 s and 70 MB before the first update
    for file in ("checkpoints/update-00000009/optimizer.safetensors", "average.safetensors"):
        assert sha256(here / file) == sha256(there / file)
    assert losses(here) == losses(there)
    assert sha256(stopped / "average.safetensors") != sha256(here / "average.safetensors")


def test_signals_end_a_run_in_good_order(project):
    commands = {
        number: Command(
            project, "train", "toy.yaml", "--run", number.name, "training.max_updates=100000"
        )
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    for number, command in commands.items():
        command.wait_until(lambda run=project / number.name: len(losses(run)) >= 5)
        command.send(number)
    for number, command in commands.items():
        status, _, err = command.finish()
        assert status == 128 + number, err
        done = Run(project / number.name).checkpoints.updates()[-1]
        path = f"{number.name}/checkpoints/update-{done:08d}"
        line = f"stopped by {number.name} after update {done}, saved in {path}; the same command"
        assert line in err
        assert "Traceback" not in err


def test_torchrun_starts_a_group_that_trains_as_one_process(project, train_here):
    options = ("--standalone", "--nproc-per-node", "2", "-m", "--", "shapeshift", "train")
    train_there(project, project / "group", "-m", "torch.distributed.run", *options)
    train_here(project / "alone")
    assert len(losses(project / "alone")) == 9
    assert losses(project / "group") == pytest.approx(losses(project / "alone"), rel=1e-3)
