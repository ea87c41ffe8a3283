"""Untrained models of a few thousand weights, small stores, and a run of a few seconds, in which
words are translated to upper case."""

import shutil
from pathlib import Path

import pytest
import torch

from shapeshift.config.config import parse_layers
from shapeshift.config.files import Layer
from shapeshift.data.prepared import Prepared
from shapeshift.data.store import write_store
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.run.folder import prepared_directory
from shapeshift.run.train import train
from shapeshift.study.grid import PlannedRun
from shapeshift.study.runner import State
from shapeshift.study.work import Order, own_sources, work
from shapeshift.training.log import read_log
from shapeshift.training.observer import Observer

from ..soak.commands import write_toy

VOCAB = 24


@pytest.fixture(scope="session")
def make_model():
    """scheme → a model in float64, with the same weights wherever the scheme has none of its own"""

    def make(scheme):
        torch.manual_seed(3)
        config = ModelConfig(dim=16, num_heads=2, ff_dim=32, encoder_layers=2, decoder_layers=1)
        return build(config, SCHEMES[scheme], VOCAB, VOCAB).double().eval()

    return make


@pytest.fixture
def make_store(tmp_path):
    """pairs of ids → a token store"""

    def make(pairs, name="store", vocab=VOCAB):
        return write_store(tmp_path / name, pairs, source_size=vocab, target_size=vocab)

    return make


def flip(path):
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def snapshot(folder):
    """Return path → content of all files, but for the curves of TensorBoard."""
    paths = [x for x in folder.rglob("*") if x.is_file() and "tensorboard" not in x.parts]
    return {x.relative_to(folder).as_posix(): x.read_bytes() for x in sorted(paths)}


def make_order(folder, config, measures, prepared_root, command="make it"):
    """Return the order for the work on a run with these settings."""
    own = {"folder": folder.path, "config": config, "measures": tuple(measures)}
    sources = own_sources(config, measures)
    return Order(**own, prepared_root=prepared_root, command=command, sources=sources)


def do_work(*arguments, **options):
    """Do the work of `make_order`."""
    work(make_order(*arguments, **options))


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The settings of a tiny run; its text is written."""
    own = {"batch": {"max_sentences": 16}, "checkpoint_every": 15, "keep_checkpoints": 3}
    schedule = {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 5}
    folder = tmp_path_factory.mktemp("toy")
    toy = write_toy(folder, 45, log_every=50, schedule=schedule, **own)
    buckets = {"evaluation": {"length_buckets": [4, 8]}}
    return toy | buckets | {"position": "shape", "decoding": {"max_length_b": 3.0}}


@pytest.fixture(scope="session")
def text(toy):
    """A folder of parallel text; line 3 of the test set is empty."""
    return Path(toy["data"]["corpus"]["root"])


@pytest.fixture(scope="session")
def make_config(toy):
    """Makes configurations of tiny runs; overrides are those of the command line."""

    def make(*overrides):
        return parse_layers([Layer(toy), *(Layer([each]) for each in overrides)])

    return make


@pytest.fixture(scope="session")
def make_run(make_config, tmp_path_factory):
    """overrides → a trained run and its data, made once; tests only read and measure it"""
    root = tmp_path_factory.mktemp("runs")
    made = {}

    def make(*overrides):
        if overrides not in made:
            config = make_config("training.max_updates=3", *overrides)
            run = train(config, root / str(len(made)), Observer(), prepared_root=root)
            made[overrides] = run, Prepared(prepared_directory(config.data, root))
        return made[overrides]

    return make


@pytest.fixture(scope="session")
def again(make_config, tmp_path_factory):
    """Trains a run of six updates in a folder, or goes on there; always on the same data."""
    root = tmp_path_factory.mktemp("again")

    def interrupt(update):
        raise KeyboardInterrupt

    def train_again(directory, *overrides, on_resume=None, stop_at=None, **options):
        six = ("max_updates=6", "checkpoint_every=2", "log_every=1")
        config = make_config(*(f"training.{setting}" for setting in six), *overrides)
        observer = Observer()
        observer.resumed = on_resume or observer.resumed
        observer.advanced = lambda update: interrupt(update) if update == stop_at else None
        return train(config, directory, observer, prepared_root=root, **options)

    train_again.prepared = root
    return train_again


@pytest.fixture(scope="session")
def finished(again, tmp_path_factory):
    """A finished run of six updates; tests only read it."""
    return again(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def copied(finished, tmp_path):
    """The folder of a copy of the finished run."""
    return shutil.copytree(finished.directory, tmp_path / "copied")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder of prepared data."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture(scope="session")
def plan_run(make_config):
    """overrides → a planned run"""

    def make(*overrides):
        config = make_config(*overrides)
        return PlannedRun("mine", "tiny", {"position": "shape"}, config.training.seed, config)

    return make


class Acting:
    """An observer of a launcher that does something to each job once its run has trained a while:
    `action(run, process)`. It remembers the jobs by the keys of their runs."""

    def __init__(self, launcher, action):
        self.jobs, self._action, self._done = {}, action, set()
        start = launcher.start

        def remember(order, *given):
            self.jobs[order.folder.name] = start(order, *given)
            return self.jobs[order.folder.name]

        launcher.start = remember

    def changed(self, planned, state, measure, progress):
        enough = progress.get("update", 0) >= 12 and state is State.RUNNING
        if enough and planned.key in self.jobs and planned.key not in self._done:
            self._done.add(planned.key)
            self._action(planned, self.jobs[planned.key])


@pytest.fixture
def go_on(make_config, prepared):
    """Trains the run of a run of many updates to its end, which is now at `update`."""

    def train_to(folder, update, *overrides):
        config = make_config(*overrides, f"training.max_updates={update}")
        train(config, folder.run, Observer(), prepared_root=prepared)
        lines = read_log(folder.run / "log.jsonl")
        updates = [line["update"] for line in lines if "loss" in line]
        assert updates == list(range(1, update + 1))  # none is missing, none stands twice

    return train_to
