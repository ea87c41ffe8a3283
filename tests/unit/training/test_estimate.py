"""Estimates of whole runs: the paper's model, and how settings move the numbers."""

import pytest
import torch

from shapeshift.data.config import BatchConfig
from shapeshift.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build
from shapeshift.positions import PRESETS
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import OptimizerConfig, TrainingConfig
from shapeshift.training.estimate import estimate
from shapeshift.training.manifest import Progress
from shapeshift.training.optim import build_optimizer


def training(max_tokens=1000, **given):
    return TrainingConfig(batch=BatchConfig(max_tokens=max_tokens), **given)


def of(settings, length=20, model=None):
    model = model or ModelConfig(size="tiny")
    return estimate(model, PRESETS["rpe"], settings, 1000, length)


def test_transformer_base_has_the_papers_size_and_needs_its_flops():
    made = estimate(ModelConfig(), PRESETS["ape"], training(14_000, accumulation=8), 32_000, 31)
    assert 60e6 < made.parameters.total < 62e6  # SHAPE paper, Table 6: 61M
    assert made.max_tokens_per_update == 112_000
    # 6 FLOPs a token and parameter that multiplies it (Kaplan et al. 2020, section 2.1): encoder
    # and decoder once each, the tied table once; attention adds some percent.
    tokens = made.batch.num_pairs * 31 * 8
    assert made.flops_per_update.total == pytest.approx(6 * tokens * 60.5e6, rel=0.05)


def test_a_model_that_no_machine_holds_is_counted_without_memory():
    giant = ModelConfig(dim=65_536, num_heads=512, ff_dim=262_144)
    made = estimate(giant, PRESETS["ape"], training(), 1_000_000, 20)
    assert made.memory.weights == 4 * made.parameters.total > 3e12


def test_accumulation_multiplies_the_work_and_not_the_memory():
    once, often = of(training()), of(training(accumulation=4))
    assert often.flops_per_update.total == 4 * once.flops_per_update.total
    assert often.memory == once.memory


def test_hours_are_flops_by_speed():
    made = of(training(max_updates=3600))
    assert made.total_flops == 3600 * made.flops_per_update.total
    assert made.hours(1.0) == pytest.approx(made.flops_per_update.total / 1e12)
    assert made.hours(100.0) == pytest.approx(made.hours(1.0) / 100)


def test_bf16_keeps_a_copy_of_the_weights_and_smaller_activations():
    half, full = of(training(precision="bf16")), of(training(precision="fp32"))
    assert 0 == full.memory.casts < half.memory.casts < half.memory.weights // 2
    assert half.memory.activations.total < full.memory.activations.total
    assert full.memory.total == 4 * full.memory.weights + full.memory.activations.total


@pytest.mark.parametrize(
    ("batch", "length", "num_pairs"),
    [
        (BatchConfig(max_tokens=1000), 30, 33),
        (BatchConfig(max_tokens=1000, max_sentences=8), 30, 8),
        (BatchConfig(max_tokens=30), 30, 1),
    ],
)
def test_a_batch_is_as_full_as_its_limits_allow(batch, length, num_pairs):
    assert of(TrainingConfig(batch=batch), length).batch.num_pairs == num_pairs


@pytest.mark.parametrize("length", [0, 1001])
def test_a_sentence_that_fits_no_batch_is_refused(length):
    with pytest.raises(ShapeshiftError, match=r"max_tokens=1,000; .* raise max_tokens"):
        of(training(), length)


@pytest.mark.parametrize("name", ["adam", "adamw", "radam"])
def test_a_checkpoint_has_the_size_on_disk_that_was_estimated(name, tmp_path):
    settings = training(optimizer=OptimizerConfig(name=name))
    shape = ModelConfig(size="tiny")
    model = build(shape, PRESETS["rpe"], 1000, 1000)
    optimizer = build_optimizer(settings.optimizer, model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    path = Checkpoints(tmp_path, 1).save(model, optimizer, Progress(update=1))
    written = sum(file.stat().st_size for file in path.iterdir())
    assert written == pytest.approx(of(settings, model=shape).checkpoint_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("updates", "kept", "checkpoints"), [(1000, 3, 4), (1000, 20, 10), (1050, 20, 11), (50, 3, 1)]
)
def test_disk_holds_the_kept_checkpoints_the_best_one_and_the_average(updates, kept, checkpoints):
    made = of(
        training(
            max_updates=updates,
            checkpoint_every=100,
            keep_checkpoints=kept,
            average_checkpoints=1,
        )
    )
    assert made.disk_bytes == checkpoints * made.checkpoint_bytes + made.memory.weights
