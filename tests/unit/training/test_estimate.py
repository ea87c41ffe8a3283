"""Estimates of whole runs: the paper's model, what is measured, and what stays on the disk."""

import pytest
import torch

from shapeshift._system.threads import num_cores
from shapeshift.data.config import BatchConfig, DataConfig
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.training import estimate
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import OptimizerConfig, TrainingConfig
from shapeshift.training.estimate import assumed_length, count_parameters, disk_bytes, measure
from shapeshift.training.manifest import Progress
from shapeshift.training.optim import build_optimizer

TINY = ModelConfig(size="tiny")


def training(max_tokens=1000, **given):
    return TrainingConfig(batch=BatchConfig(max_tokens=max_tokens), device="cpu", **given)


def measured(max_tokens, **settings):
    """Measure an update of sentences of 31 tokens."""
    model = build(TINY, SCHEMES["ape"], 200, 200)
    return measure(model, training(max_tokens, precision="fp32", **settings), 31)


def test_models_are_counted_without_memory():
    giant = ModelConfig(dim=65_536, num_heads=512, ff_dim=262_144)
    assert count_parameters(giant, SCHEMES["ape"], 1_000_000) > 7e11


def test_the_time_is_the_median_after_a_warm_up_and_scaled(monkeypatch):
    """Of updates of three batches, which a CPU measures a tenth of."""
    monkeypatch.setattr(estimate, "CPU_TOKENS", 62)
    ticks = iter([0.0, 0.2, 1.0, 1.1, 2.0, 2.4])  # steps of 0.2, 0.1 and 0.4 seconds
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(estimate, "watch_others", lambda: lambda: 0.0)
    found = measured(620, accumulation=3)
    assert found.low == found.high == pytest.approx(0.2 * 3 * 10)
    assert found.others == 0.0
    assert next(ticks, None) is None


def test_time_that_others_took_is_not_in_the_lower_estimate(monkeypatch):
    """One thread on a machine whose cores others use: of 0.9 seconds it worked 0.1."""
    ticks, worked = iter([0.0, 0.9, 1.0, 1.9, 2.0, 2.9]), iter([0.0, 0.1, 0.1, 0.2, 0.2, 0.3])
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(estimate.time, "process_time", lambda: next(worked))
    monkeypatch.setattr(estimate, "watch_others", lambda: lambda: float(num_cores()))
    monkeypatch.setattr(estimate.torch, "get_num_threads", lambda: 1)
    found = measured(62)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.9))
    assert found.others == num_cores()


def test_several_threads_are_measured_again_once_they_sleep(monkeypatch):
    waits, results = [], iter([(5.0, 9.0, 1.5), (1.0, 0.8, 1.5)])
    monkeypatch.setattr(estimate.time, "sleep", waits.append)
    monkeypatch.setattr(estimate, "_time", lambda *_: next(results))
    monkeypatch.setattr(estimate.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(estimate, "is_crowded", lambda others, _: others > 0)
    found = measured(62)
    assert len(waits) == 1
    assert found == (pytest.approx(0.4), 1.0, 1.5)


def test_a_checkpoint_has_the_size_on_disk_that_was_estimated(tmp_path):
    model = build(TINY, SCHEMES["rpe"], 1000, 1000)
    optimizer = build_optimizer(OptimizerConfig(), model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    path = Checkpoints(tmp_path, 1).save(model, optimizer, Progress(update=1))
    written = sum(file.stat().st_size for file in path.iterdir())
    num_parameters = count_parameters(TINY, SCHEMES["rpe"], 1000)
    one = training(max_updates=1, checkpoint_every=1, keep_checkpoints=1, average_checkpoints=1)
    checkpoint = disk_bytes(one, num_parameters) - 4 * num_parameters
    assert written == pytest.approx(checkpoint, rel=0.02)
    assert disk_bytes(one, num_parameters, tmp_path) == checkpoint + 4 * num_parameters - written


@pytest.mark.parametrize(
    ("updates", "kept", "checkpoints"), [(1000, 3, 6), (1000, 20, 10), (1050, 20, 11), (50, 3, 1)]
)
def test_disk_holds_the_kept_checkpoints_three_more_and_the_average(updates, kept, checkpoints):
    settings = training(
        max_updates=updates, checkpoint_every=100, keep_checkpoints=kept, average_checkpoints=1
    )
    assert disk_bytes(settings, 1000) == checkpoints * 12_000 + 4_000


def test_joined_sentences_are_as_long_as_all_of_them():
    data = [{}, {"recipe": {"name": "interpolate", "num_joined": 3}}]
    lengths = [assumed_length(DataConfig.model_validate(each)) for each in data]
    assert lengths == [31, 3 * 30 + 2 + 1]
