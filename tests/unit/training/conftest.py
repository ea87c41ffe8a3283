"""A tiny model and a tiny task: reverse the source."""

import os
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shapeshift.data import store
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import TrainingConfig
from shapeshift.training.log import Log
from shapeshift.training.trainer import Trainer

from .models import Recorder

SPECIAL, VOCAB = 5, 20


def write_store(folder, pairs):
    return store.write_store(folder, pairs, source_size=VOCAB, target_size=VOCAB)


@pytest.fixture
def memory(tmp_path):
    """A folder in memory where the system has one: there will be thousands of tiny files."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def write_stores(folder):
    """100 training pairs (13 batches of at most 8) and 15 for validation."""
    rng = random.Random(5)

    def pairs(count):
        sources = [rng.choices(range(SPECIAL, VOCAB), k=rng.randint(1, 6)) for _ in range(count)]
        return [(source, source[::-1]) for source in sources]

    return SimpleNamespace(
        train=write_store(folder / "train", pairs(100)),
        valid=write_store(folder / "valid", pairs(15)),
    )


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    return write_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture
def lab(stores, tmp_path):
    """Makes trainers that differ from one another in what a test says, and runs them."""
    return make_lab(stores, tmp_path)


@pytest.fixture(scope="session")
def whole(stores, tmp_path_factory):
    """The trainer of a run of 20 updates that nothing has disturbed."""
    lab = make_lab(stores, tmp_path_factory.mktemp("whole"))
    trainer = lab.make()
    lab.fit(trainer)
    return trainer


def make_lab(stores, folder):
    def make(
        name="run", *, position="shape", dropout=0.1, data=stores, validate=None, parallel=None,
        **settings,
    ):  # fmt: skip
        given = {
            "max_updates": 20,
            "batch": {"max_sentences": 8},
            "accumulation": 2,
            "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 5},
            "precision": "fp32",
            "device": "cpu",
            "log_every": 3,
            "checkpoint_every": 4,
            "keep_checkpoints": 2,
            "average_checkpoints": 2,
        }
        config = TrainingConfig(**(given | settings))
        shape = {"dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1}
        torch.manual_seed(7)
        model = build(ModelConfig(**shape, dropout=dropout), SCHEMES[position], VOCAB, VOCAB)
        checkpoints = Checkpoints(
            folder / name / "checkpoints", config.keep_checkpoints, every=config.checkpoint_every
        )
        (folder / name).mkdir(exist_ok=True)
        return Trainer(model, config, data.train, data.valid, checkpoints, validate, parallel)

    def fit(trainer, stop_at=None, *, observer=None, **options):
        """Train; `stop_at` an update as Ctrl-C would. Return the observer."""

        def interrupt():
            raise KeyboardInterrupt

        recorder = observer or Recorder(stop_at, interrupt)
        progress, directory = trainer.progress, trainer.checkpoints.directory.parent
        log = Log(directory, progress.update, not trainer.validation_is_due)
        try:
            trainer.fit(log, recorder, **options)
        except KeyboardInterrupt:
            assert stop_at is not None
        finally:
            log.close()
        return recorder

    return SimpleNamespace(make=make, fit=fit, folder=folder, write_store=write_store)
